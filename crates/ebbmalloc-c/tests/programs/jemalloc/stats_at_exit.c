/* Ends with memory in use; statistics and leak reports by settings are the harness's to read. */
#include "control.h"

int main(void) {
    require_preload();
    void *volatile kept = malloc(123456);
    CHECK(kept != NULL);
    memset(kept, 1, 123456);
    kept = NULL;
    return passed();
}
