// Prints the checksum of every encoder's bytes: compilers.sh builds it in several ways.
#include "unit/quant_support.h"

#include <cinttypes>
#include <cstdio>

int main() {
    const uint64_t checksum = quant_test::checksum_of_all();
    std::printf("%016" PRIx64 "\n", checksum);
    return checksum != quant_test::kEncodersChecksum;
}
