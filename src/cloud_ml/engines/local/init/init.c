/* The first process inside a sandbox: starts the command, reaps orphans, and tells how the command ended.
 *
 *   init STATUS_FD PROGRAM_FD VARIABLES_FD CHANNEL_FD PORT COMMAND [ARGUMENT...]
 *
 * bubblewrap's own first process answers like a shell, where exit code 137 and SIGKILL look the same.
 * This one writes the raw wait status (waitpid(2)) to STATUS_FD, as one line, and ends; the kernel then
 * ends whatever else is in the pid namespace. PROGRAM_FD, from which this program was executed, is
 * closed. Unless PORT is 0, it listens on PORT of the loopback before the command starts, and sends that
 * socket through CHANNEL_FD: from a network that leads nowhere, the command reaches whoever accepts on it.
 * CHANNEL_FD may be -1. None of these descriptors reaches the command.
 *
 * The command's variables are read from VARIABLES_FD, unless it is -1: each as NAME=VALUE, with a NUL
 * behind it. They are not those of this program. Where it is not linked statically, LD_PRELOAD of a job
 * would have code of the job run in here, with the descriptors above: a copy of the socket that listens
 * is enough to have whoever accepts on it wait for ever (O_NONBLOCK is shared with the copy).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BACKLOG = 64 };

static void run(char **command) {
    execvp(command[0], command);
    int error = errno;
    dprintf(2, "cloudml: %s cannot be run: %s\n", command[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126); /* as shells do */
}

/* False if they cannot be read. */
static int set_variables(int from) {
    struct stat about;
    if (fstat(from, &about))
        return 0;
    size_t size = (size_t)about.st_size, there = 0;
    char *text = malloc(size + 1); /* stays: putenv(3) keeps no copy */
    if (!text)
        return 0;
    while (there < size) {
        ssize_t got = read(from, text + there, size - there);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return 0;
        if (got > 0)
            there += (size_t)got;
    }
    text[size] = 0;
    for (char *at = text; at < text + size; at += strlen(at) + 1)
        if (putenv(at))
            return 0;
    close(from);
    return 1;
}

/* Without a free port nothing is sent: another task in the same network has it. */
static void offer(int channel, int port) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* Else the port stays taken for a minute after a predecessor (TIME_WAIT). */
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(listener, (struct sockaddr *)&place, sizeof place) && !listen(listener, BACKLOG)) {
        union { char room[CMSG_SPACE(sizeof listener)]; struct cmsghdr head; } control = {{0}};
        struct iovec byte = {"", 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control.room,
                                 .msg_controllen = sizeof control.room};
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof listener);
        memcpy(CMSG_DATA(&control.head), &listener, sizeof listener);
        sendmsg(channel, &message, MSG_NOSIGNAL);
    }
    close(listener);
}

int main(int count, char **words) {
    if (count < 7)
        return 125;
    int status_fd = atoi(words[1]), variables = atoi(words[3]);
    int channel = atoi(words[4]), port = atoi(words[5]);
    close(atoi(words[2]));
    fcntl(status_fd, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* nobody inside opens our descriptors through /proc */
    if (channel >= 0) {
        if (port)
            offer(channel, port);
        close(channel);
    }
    if (variables >= 0 && !set_variables(variables))
        return 125;
    pid_t command = fork();
    if (command < 0)
        return 125;
    if (command == 0)
        run(words + 6);
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended < 0 && errno != EINTR)
            return 125;
        if (ended == command) {
            dprintf(status_fd, "%d\n", status);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
}
