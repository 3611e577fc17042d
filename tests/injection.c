/* Fails or kills a process at one of its file operations; loaded by LD_PRELOAD.

Operations that change files below a folder are counted, those of SQLite too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, EIO_ONCE, ENOSPC_ONCE, EIO_DONE, EIO_ON, KILL, KILL_DONE };
static char root[PATH_MAX];
static long target = -1, made;
static int how;

void arm(const char *folder, long number, int mode) {
    snprintf(root, sizeof root, "%s/", folder);
    target = number;
    how = mode;
    made = 0;
}

long operations(void) { return made; }

static int below(const char *path) { return *root && !strncmp(path, root, strlen(root)); }

static int watched_fd(int fd) {
    char link[64], path[PATH_MAX + 1];
    if (!*root) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n < 0) return 0;
    path[n] = '/'; /* the folder itself, too */
    path[n < PATH_MAX ? n + 1 : n] = 0;
    return below(path);
}

static int watched(int at, const char *path) {
    char all[2 * PATH_MAX];
    if (!*root) return 0;
    if (*path == '/') return below(path);
    if (at != AT_FDCWD) return watched_fd(at);
    if (!getcwd(all, PATH_MAX)) return 0;
    size_t n = strlen(all);
    snprintf(all + n, sizeof all - n, "/%s", path);
    return below(all);
}

static void die(void) { kill(getpid(), SIGKILL); pause(); }

/* 0 to do it, -1 with errno to fail, 1 to do it and then call `after` */
static int before(int is_watched) {
    if (!is_watched) return 0;
    long number = made++;
    if (number < target || target < 0 || (number > target && how != EIO_ON)) return 0;
    if (how == KILL) die();
    if (how == KILL_DONE || how == EIO_DONE) return 1;
    if (how == COUNT) return 0;
    errno = how == ENOSPC_ONCE ? ENOSPC : EIO;
    return -1;
}

static int after(void) {
    if (how == KILL_DONE) die();
    errno = EIO;
    return -1;
}

static int broken(int is_watched) { /* a read of a disk that is gone */
    if (how != EIO_ON || target < 0 || made <= target || !is_watched) return 0;
    errno = EIO;
    return 1;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define AROUND(is_watched, call) \
    int d = before(is_watched); \
    if (d < 0) return -1; \
    int r = call; \
    return d ? after() : r;

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        int mode = va_arg(more, int); \
        va_end(more); \
        int w = watched(AT_FDCWD, path); \
        if (broken(w)) return -1; \
        int d = before(w && (flags & (O_WRONLY | O_RDWR | O_CREAT))); \
        if (d < 0) return -1; \
        int r = REAL(int, #name, const char *, int, ...)(path, flags, mode); \
        return d ? after() : r; \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        int mode = va_arg(more, int); \
        va_end(more); \
        int w = watched(at, path); \
        if (broken(w)) return -1; \
        int d = before(w && (flags & (O_WRONLY | O_RDWR | O_CREAT))); \
        if (d < 0) return -1; \
        int r = REAL(int, #name, int, const char *, int, ...)(at, path, flags, mode); \
        return d ? after() : r; \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int fd, void *data, size_t n) {
    if (broken(watched_fd(fd))) return -1;
    return REAL(ssize_t, "read", int, void *, size_t)(fd, data, n);
}
#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t n, off_t at) { \
        if (broken(watched_fd(fd))) return -1; \
        return REAL(ssize_t, #name, int, void *, size_t, off_t)(fd, data, n, at); \
    }
PREAD(pread)
PREAD(pread64)

/* a write that is killed is torn: half of it is there */
ssize_t write(int fd, const void *data, size_t n) {
    int d = before(watched_fd(fd));
    if (d < 0) return -1;
    ssize_t r = REAL(ssize_t, "write", int, const void *, size_t)(fd, data, d ? (n + 1) / 2 : n);
    return d ? after() : r;
}
#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t at) { \
        int d = before(watched_fd(fd)); \
        if (d < 0) return -1; \
        ssize_t r = REAL(ssize_t, #name, int, const void *, size_t, off_t)( \
            fd, data, d ? (n + 1) / 2 : n, at); \
        return d ? after() : r; \
    }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int fd, const struct iovec *data, int n) {
    AROUND(watched_fd(fd), REAL(ssize_t, "writev", int, const struct iovec *, int)(fd, data, n))
}

#define OF_FD(name) \
    int name(int fd) { AROUND(watched_fd(fd), REAL(int, #name, int)(fd)) }
OF_FD(fsync)
OF_FD(fdatasync)
#define TRUNCATE(name) \
    int name(int fd, off_t n) { AROUND(watched_fd(fd), REAL(int, #name, int, off_t)(fd, n)) }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)
#define ALLOCATE(name) /* which returns the number of its error */ \
    int name(int fd, off_t at, off_t n) { \
        int d = before(watched_fd(fd)); \
        if (d < 0) return errno; \
        int r = REAL(int, #name, int, off_t, off_t)(fd, at, n); \
        return d ? (after(), errno) : r; \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)
int fchmod(int fd, mode_t mode) {
    AROUND(watched_fd(fd), REAL(int, "fchmod", int, mode_t)(fd, mode))
}

#define OF_PATH(name) \
    int name(const char *path) { AROUND(watched(AT_FDCWD, path), REAL(int, #name, const char *)(path)) }
OF_PATH(unlink)
OF_PATH(rmdir)
#define OF_MODE(name) \
    int name(const char *path, mode_t mode) { \
        AROUND(watched(AT_FDCWD, path), REAL(int, #name, const char *, mode_t)(path, mode)) \
    }
OF_MODE(mkdir)
OF_MODE(chmod)
int mkdirat(int at, const char *path, mode_t mode) {
    AROUND(watched(at, path), REAL(int, "mkdirat", int, const char *, mode_t)(at, path, mode))
}
int fchmodat(int at, const char *path, mode_t mode, int flags) {
    AROUND(watched(at, path),
           REAL(int, "fchmodat", int, const char *, mode_t, int)(at, path, mode, flags))
}
int unlinkat(int at, const char *path, int flags) {
    AROUND(watched(at, path), REAL(int, "unlinkat", int, const char *, int)(at, path, flags))
}
#define OF_PAIR(name) \
    int name(const char *from, const char *to) { \
        AROUND(watched(AT_FDCWD, to), \
               REAL(int, #name, const char *, const char *)(from, to)) \
    }
OF_PAIR(rename)
OF_PAIR(link)
int renameat(int a, const char *from, int b, const char *to) {
    AROUND(watched(b, to), REAL(int, "renameat", int, const char *, int, const char *)(a, from, b, to))
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
    AROUND(watched(b, to),
           REAL(int, "linkat", int, const char *, int, const char *, int)(a, from, b, to, flags))
}
