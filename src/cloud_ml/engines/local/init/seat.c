/* A process that has joined its limits and waits to become a command.
 *
 *   seat ORDERS_FD PARENT SCOPED [DOOR...]
 *
 * DOORs are the files of control groups to which a process writes itself. What to become is read from
 * ORDERS_FD to its end, as strings with a NUL behind each: user and group (both empty to stay who one is), the
 * file of the network to enter (empty to stay), how many words, the words, the variables, and a "." that says
 * that this is all. No orders mean that PARENT, the supervisor, is gone or wants nothing. SCOPED is 1 where
 * Landlock is to keep sockets without a file, and signals, inside (landlock.py has the same for a seat that is
 * a fork).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { UNABLE = 127, CREATE_RULESET = 444, RESTRICT_SELF = 446 };

static char *orders;
static size_t length, position;

static void fail(const char *what) {
    dprintf(2, "cloudml: %s: %s\n", what, strerror(errno));
    _exit(UNABLE);
}

static void join(const char *door) {
    int file = open(door, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "0", 1) != 1)
        fail(door);
    close(file);
}

static void keep_inside(void) {
    struct { uint64_t files, tcp, scopes; } all = {0, 0, 3}; /* abstract sockets and signals */
    long rules = syscall(CREATE_RULESET, &all, sizeof all, 0);
    if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(RESTRICT_SELF, (int)rules, 0))
        fail("Landlock");
    close(rules);
}

static void read_orders(int from) {
    size_t room = 0;
    for (;;) {
        if (room - length < 4096 && !(orders = realloc(orders, room += 32768)))
            fail("orders");
        ssize_t got = read(from, orders + length, room - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += got;
    }
    close(from);
    if (length < 3 || memcmp(orders + length - 3, "\0.", 3) != 0)
        _exit(UNABLE);
}

static char *next(void) {
    if (position >= length)
        _exit(UNABLE);
    char *found = orders + position;
    position += strlen(found) + 1;
    return found;
}

static void enter(const char *network) {
    int file = open(network, O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET))
        fail("the network of the job");
    close(file);
}

static char **list(size_t count) {
    char **found = calloc(count + 1, sizeof *found);
    if (!found)
        fail("orders");
    for (size_t number = 0; number < count; number++)
        found[number] = next();
    return found;
}

static size_t left(void) {
    size_t count = 0;
    for (size_t at = position; at < length; at++)
        count += orders[at] == 0;
    return count;
}

int main(int count, char **words) {
    if (count < 4)
        return UNABLE;
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    setsid();
    umask(022);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int number = 4; number < count; number++)
        join(words[number]);
    read_orders(atoi(words[1]));
    char *user = next(), *group = next(), *network = next();
    size_t number = strtoul(next(), NULL, 10);
    if (number == 0 || number >= left())
        return UNABLE;
    char **command = list(number), **variables = list(left() - 1);
    if (*network)
        enter(network);
    if (*user) {
        gid_t gid = strtoul(group, NULL, 10);
        uid_t uid = strtoul(user, NULL, 10);
        if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
            fail("the user of the job");
    }
    if (chdir("/"))
        fail("/");
    if (*words[3] == '1')
        keep_inside();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    if (getppid() != atoi(words[2]))
        return UNABLE;
    execve(command[0], command, variables);
    dprintf(2, "cloudml: %s cannot be started: %s\n", command[0], strerror(errno));
    return UNABLE;
}
