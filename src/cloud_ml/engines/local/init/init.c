/* The first process inside a sandbox: starts the command, reaps orphans, and tells how the command ended.
 *
 *   init STATUS_FD PROGRAM_FD CHANNEL_FD PORT COMMAND [ARGUMENT...]
 *
 * bubblewrap's own first process answers like a shell, where exit code 137 and SIGKILL look the same.
 * This one writes the raw wait status (waitpid(2)) to STATUS_FD, as one line, and ends; the kernel then
 * ends whatever else is in the pid namespace. PROGRAM_FD, from which this program was executed, is
 * closed. Unless PORT is 0, it listens on PORT of the loopback before the command starts, and sends that
 * socket through CHANNEL_FD: from a network that leads nowhere, the command reaches whoever accepts on it.
 * CHANNEL_FD may be -1. None of these descriptors reaches the command.
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
#include <sys/wait.h>
#include <unistd.h>

enum { BACKLOG = 64 };

static void run(char **command) {
    execvp(command[0], command);
    int error = errno;
    dprintf(2, "cloudml: %s cannot be run: %s\n", command[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126); /* as shells do */
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
    if (count < 6)
        return 125;
    int status_fd = atoi(words[1]), channel = atoi(words[3]), port = atoi(words[4]);
    close(atoi(words[2]));
    fcntl(status_fd, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* nobody inside opens our descriptors through /proc */
    if (channel >= 0) {
        if (port)
            offer(channel, port);
        close(channel);
    }
    pid_t command = fork();
    if (command < 0)
        return 125;
    if (command == 0)
        run(words + 5);
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
