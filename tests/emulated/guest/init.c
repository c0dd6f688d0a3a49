/* /init of the emulated machine: runs /run/args (NUL-separated) with the environment /run/env, hands its
 * output to the host over Bochs' port 0xe9 in frames (tag, u16 length, data), and switches the machine off.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void out(unsigned port, const void *data, unsigned long size) {
    __asm__ volatile("rep outsb" : "+S"(data), "+c"(size) : "d"(port) : "memory");
}

static void frame(char tag, const void *data, unsigned size) {
    unsigned char head[3] = {(unsigned char)tag, size & 255, size >> 8};
    out(0xe9, head, 3);
    out(0xe9, data, size);
}

static char *read_file(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    *size = 0;
    if (fd < 0 || fstat(fd, &st))
        return calloc(1, 2);
    char *data = calloc(1, st.st_size + 2);
    ssize_t got;
    while (*size < (size_t)st.st_size && (got = read(fd, data + *size, st.st_size - *size)) > 0)
        *size += got;
    close(fd);
    return data;
}

static char **read_strings(const char *path) {
    size_t size, count = 0;
    char *data = read_file(path, &size);
    for (size_t i = 0; i < size; i++)
        count += !data[i];
    char **strings = calloc(count + 1, sizeof *strings);
    size_t k = 0;
    for (size_t i = 0; i < size; i += strlen(data + i) + 1)
        strings[k++] = data + i;
    return strings;
}

static void prepare_files(void) {
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("dev", "/dev", "devtmpfs", 0, 0);
    mkdir("/dev/shm", 01777);
    (void)!symlink("/proc/self/fd", "/dev/fd");
}

/* AMX: XCR0's tile bits on from the start, as on a real machine (prctl.S; an error where the kernel is not
 * patched). */
static void enable_tiles(void) {
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1))
        syscall(SYS_arch_prctl, 0x1023, 18);
}

static pid_t start(char **argv, char **envp, int out_fd, int err_fd) {
    pid_t pid = fork();
    if (pid)
        return pid;
    setsid();
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(out_fd, 1);
    dup2(err_fd, 2);
    iopl(0);
    execve(argv[0], argv, envp);
    const char *why = strerror(errno);
    (void)!write(2, "init: execve: ", 14);
    (void)!write(2, why, strlen(why));
    (void)!write(2, "\n", 1);
    _exit(127);
}

/* Forwards both pipes until they close, or until the program is gone and nothing more comes (a grandchild may
 * keep them open). Returns the program's wait status. */
static int forward(pid_t pid, int out_fd, int err_fd) {
    static char buffer[32768];
    struct pollfd fds[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
    int status = 0, gone = 0;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        int ready = poll(fds, 2, gone ? 0 : 50);
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            ssize_t got = read(fds[i].fd, buffer, sizeof buffer);
            if (got > 0)
                frame("OE"[i], buffer, got);
            else if (got == 0 || errno != EINTR)
                fds[i].fd = -1;
        }
        if (!gone)
            gone = waitpid(pid, &status, WNOHANG) == pid;
        else if (ready == 0)
            break;
    }
    while (!gone)
        gone = waitpid(pid, &status, 0) == pid;
    return status;
}

int main(void) {
    static const char hello[] = "\nEMU-FRAMES\n";
    int out_pipe[2], err_pipe[2];
    if (iopl(3))
        return 1;
    out(0xe9, hello, sizeof hello - 1);
    prepare_files();
    enable_tiles();
    if (pipe2(out_pipe, O_CLOEXEC) || pipe2(err_pipe, O_CLOEXEC))
        return 1;
    frame('B', "", 0);
    pid_t pid = start(read_strings("/run/args"), read_strings("/run/env"), out_pipe[1], err_pipe[1]);
    close(out_pipe[1]);
    close(err_pipe[1]);
    int status = forward(pid, out_pipe[0], err_pipe[0]);
    frame('X', &status, 4);
    for (;;)
        out(0x8900, "Shutdown", 8);
}
