/* Refuses system calls to this process, as container profiles and sandboxes do. */
#ifndef BENCH_RETURN_REFUSE_H
#define BENCH_RETURN_REFUSE_H

/* `list`: names joined by commas, each with an optional errno: "membarrier:ENOSYS".
 * The default is EPERM, which Docker's default profile answers. Applies to every
 * thread of the process, also to those an allocator has already started. Exits
 * with a message when the filter cannot be installed. */
void refuse_calls(const char *list);

/* Exits with a message unless each call is answered as the list says. */
void refusal_check(const char *list);

#endif
