/* A library with BYTES of static TLS, which its users cannot do without. */
__thread char room[BYTES] __attribute__((tls_model("initial-exec")));

char *room_of_this_thread(void) { return room; }
