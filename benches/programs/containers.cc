// containers: the allocation behaviour of C++ programs, through operator new and
// delete: ordered and hashed maps with string keys, vectors of strings, lists.
// Prints one JSON object like speed's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "random.h"
#include "report.h"

namespace {

std::string key_of(uint64_t number)
{
    // Longer than the 15 bytes that libstdc++ keeps inside the string.
    return "a key of some length " + std::to_string(number);
}

template <class Map> uint64_t fill_and_thin(random_state &random, unsigned entries)
{
    Map map;
    for (unsigned i = 0; i < entries; i++)
        map[key_of(random_next(&random) % entries)] = std::string(random_below(&random, 200), 'x');
    for (unsigned i = 0; i < entries; i++)
        map.erase(key_of(i));
    return 2u * entries;
}

uint64_t split_and_sort(random_state &random, unsigned words)
{
    std::vector<std::string> list;
    for (unsigned i = 0; i < words; i++)
        list.push_back(std::string(16 + random_below(&random, 100), static_cast<char>('a' + i % 26)));
    std::list<std::vector<int>> groups;
    for (unsigned i = 0; i < words; i++) {
        if (i % 10 == 0)
            groups.emplace_back();
        groups.back().push_back(static_cast<int>(list[i].size()));
        if (groups.size() > 1000)
            groups.pop_front();
    }
    return 2u * words;
}

} // namespace

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
    if (rounds < 1) {
        std::fprintf(stderr, "usage: containers [ROUNDS]\n");
        return 64;
    }
    const char *provider = malloc_provider();
    random_state random = random_seeded(1);
    uint64_t operations = 0;
    double cpu_before_s = cpu_seconds(), from = clock_seconds();
    for (int round = 0; round < rounds; round++) {
        operations += fill_and_thin<std::map<std::string, std::string>>(random, 20000);
        operations += fill_and_thin<std::unordered_map<std::string, std::string>>(random, 20000);
        operations += split_and_sort(random, 20000);
    }
    double wall_s = clock_seconds() - from, cpu_s = cpu_seconds() - cpu_before_s;
    std::printf("{\"program\": \"containers\", \"case\": \"containers\", \"malloc_provider\": \"%s\", \"threads\": 1, "
                "\"operations\": %llu, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"ns_per_operation\": %.3f, "
                "\"peak_rss_bytes\": %ld}\n",
                provider, static_cast<unsigned long long>(operations), wall_s, cpu_s,
                wall_s * 1e9 / static_cast<double>(operations), peak_rss_bytes());
    return 0;
}
