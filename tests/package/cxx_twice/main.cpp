// The C++ layer from an installed package.
#include <nybl/nybl.hpp>

int main() {
    return nybl_status_string(NYBL_OK) == nullptr;
}
