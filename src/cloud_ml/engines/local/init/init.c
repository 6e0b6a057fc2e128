/* The first process inside a sandbox: starts the command, reaps orphans, and tells how the command ended.
 *
 *   init STATUS_FD PROGRAM_FD COMMAND [ARGUMENT...]
 *
 * bubblewrap's own first process answers like a shell, where exit code 137 and SIGKILL look the same.
 * This one writes the raw wait status (waitpid(2)) to STATUS_FD, as one line, and ends; the kernel then
 * ends whatever else is in the pid namespace. PROGRAM_FD, from which this program was executed, is
 * closed. Neither descriptor reaches the command.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(char **command) {
    execvp(command[0], command);
    int error = errno;
    dprintf(2, "cloudml: %s cannot be run: %s\n", command[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126); /* as shells do */
}

int main(int count, char **words) {
    if (count < 4)
        return 125;
    int status_fd = atoi(words[1]);
    close(atoi(words[2]));
    fcntl(status_fd, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* nobody inside opens our descriptors through /proc */
    pid_t command = fork();
    if (command < 0)
        return 125;
    if (command == 0)
        run(words + 3);
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
