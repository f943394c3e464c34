// One misuse of the C++ operators, as the argument says. Prints "undetected" if nothing ended it.
#include "check.h"
#include <cstdio>
#include <new>
#include <string>

struct Nine {
    size_t word[9];
};

int main(int, char **arguments) {
    const std::string kind = arguments[1];
    if (kind == "delete_of_other_size") delete reinterpret_cast<Nine *>(new char);
    if (kind == "delete_array_of_one") {
        char *volatile one = new char;
        delete[] one;
    }
    if (kind == "delete_one_of_array") {
        char *volatile array = new char[4096];
        delete array;
    }
    if (kind == "delete_array_of_one_string") {
        std::string *volatile one = new std::string;
        delete[] one;
    }
    if (kind == "delete_one_of_strings") {
        std::string *volatile array = new std::string[4096];
        delete array;
    }
    if (kind == "delete_of_malloc") delete static_cast<char *>(malloc(100));
    if (kind == "free_of_new") free(new char[100]);
    puts("undetected");
    fflush(stdout);
}
