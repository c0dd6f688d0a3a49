// Forked children and the two ways in which Linux refuses executable memory.
#include "kernels/child_process.h"

#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nybl::test {

std::string run_in_child(const std::function<std::string()> &body) {
    int ends[2];
    if (pipe(ends) != 0) {
        return "pipe failed";
    }
    const pid_t child = fork();
    if (child < 0) {
        return "fork failed";
    }
    if (child == 0) {
        close(ends[0]);
        alarm(30);
        std::string sentence;
        try {
            sentence = body();
        } catch (...) {
            sentence = "an exception left the child's body";
        }
        const bool written = write(ends[1], sentence.data(), sentence.size()) >= 0;
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    std::string sentence;
    char buffer[256];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
        sentence.append(buffer, static_cast<size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        return "the child died of signal " + std::to_string(WTERMSIG(status)) + " " + sentence;
    }
    if (WEXITSTATUS(status) != 0) {
        return "the child ended with " + std::to_string(WEXITSTATUS(status)) + " " + sentence;
    }
    return sentence;
}

bool refuse_executable_memory_by_seccomp() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {static_cast<unsigned short>(sizeof filter / sizeof *filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool refuse_executable_memory_by_mdwe() {
    constexpr int kSetMdwe = 65; // PR_SET_MDWE, Linux 6.3
    constexpr unsigned long kRefuseExecGain = 1;
    return prctl(kSetMdwe, kRefuseExecGain, 0, 0, 0) == 0;
}

} // namespace nybl::test
