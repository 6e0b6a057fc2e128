/* Remembers what a program has forced to the disk, so that a test can take everything else away.
 *
 * Preloaded into the server and what it forks. After fsync or fdatasync of a file below POWER_ROOT, its content lies
 * in POWER_KEPT as f-<inode>-<birth>; of a folder, its entries as d-<inode>-<birth>. Also the boot id can be another:
 * the content of POWER_BOOT. Nothing is opened a second time that could be locked: closing it would drop SQLite's locks.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static int key_at(int folder, const char *name, int flags, char *key, size_t room, struct statx *facts)
{
    if (statx(folder, name, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, facts))
        return -1;
    snprintf(key, room, "%llx-%llx", (unsigned long long)facts->stx_ino,
             (unsigned long long)facts->stx_btime.tv_sec * 1000000000ULL + facts->stx_btime.tv_nsec);
    return 0;
}

/* For the test, which names things as we do. */
int power_key(const char *path, char *key, size_t room)
{
    struct statx facts;
    return key_at(AT_FDCWD, path, 0, key, room, &facts);
}

static int copy(int from, int to)
{
    static __thread char block[1 << 16];
    off_t at = 0;
    ssize_t got;
    while ((got = pread(from, block, sizeof block, at)) > 0) {
        if (pwrite(to, block, got, at) != got)
            return -1;
        at += got;
    }
    return got < 0 ? -1 : 0;
}

static int copy_file(int descriptor, int to)
{
    char link[64];
    if (!copy(descriptor, to))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor); /* it can only be written: no database is like that */
    int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    int wrong = again < 0 || copy(again, to);
    if (again >= 0)
        close(again);
    return wrong;
}

static int copy_folder(int descriptor, int to)
{
    char link[64], key[64];
    struct statx facts;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (!entries)
        return -1;
    struct dirent *entry;
    while ((entry = readdir(entries)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            !key_at(again, entry->d_name, 0, key, sizeof key, &facts))
            dprintf(to, "%s %s", key, entry->d_name), write(to, "", 1);
    closedir(entries);
    return 0;
}

static void remember(int descriptor)
{
    const char *root = getenv("POWER_ROOT"), *kept = getenv("POWER_KEPT");
    char link[64], path[4096], key[64], draft[4200], target[4200];
    struct statx facts;
    if (!root || !kept)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t depth = strlen(root);
    if (length < 0)
        return;
    path[length] = 0;
    if (strncmp(path, root, depth) || (path[depth] && path[depth] != '/'))
        return;
    snprintf(draft, sizeof draft, "%s/lock", kept);
    int lock = syscall(SYS_openat, AT_FDCWD, draft, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) || key_at(descriptor, "", AT_EMPTY_PATH, key, sizeof key, &facts))
        abort(); /* a test that misses something would accuse the innocent */
    int folder = S_ISDIR(facts.stx_mode);
    snprintf(draft, sizeof draft, "%s/draft", kept);
    snprintf(target, sizeof target, "%s/%c-%s", kept, folder ? 'd' : 'f', key);
    int to = syscall(SYS_openat, AT_FDCWD, draft, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (to < 0 || (folder ? copy_folder : copy_file)(descriptor, to))
        abort();
    close(to);
    if (rename(draft, target))
        abort();
    close(lock);
}

static int forced(int descriptor)
{
    struct stat facts;
    if (fstat(descriptor, &facts))
        return -1;
    if (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) {
        int before = errno;
        remember(descriptor);
        errno = before;
        return 0;
    }
    errno = EINVAL;
    return -1;
}

int fsync(int descriptor) { return forced(descriptor); }
int fdatasync(int descriptor) { return forced(descriptor); }

static const char *seen(const char *path)
{
    const char *other = getenv("POWER_BOOT");
    return other && path && !strcmp(path, BOOT_ID) ? other : path;
}

#define OPEN(name)                                              \
    int name(const char *path, int flags, ...)                  \
    {                                                           \
        va_list more;                                           \
        va_start(more, flags);                                  \
        mode_t mode = va_arg(more, mode_t);                     \
        va_end(more);                                           \
        return syscall(SYS_openat, AT_FDCWD, seen(path), flags, mode); \
    }
OPEN(open)
OPEN(open64)
