/* Starts the command in its arguments and ends with its status. */
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **arguments) {
    pid_t child;
    int status;
    if (count < 2 || posix_spawn(&child, arguments[1], 0, 0, arguments + 1, environ) != 0) return 2;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
