// Keeps known numbers of bytes that C++ allocated, for a heap profile to find.
#include <cstdio>
#include <string>
#include <vector>

struct Node {
    char bytes[400];
    Node *next;
};

__attribute__((noinline)) static Node *make_node() { return new Node(); }

__attribute__((noinline)) static std::vector<std::string> make_strings(int count)
{
    std::vector<std::string> strings;
    strings.reserve(count);
    for (int i = 0; i < count; i++)
        strings.emplace_back(2000, 'x');
    return strings;
}

int main()
{
    Node *first = nullptr;
    for (int i = 0; i < 20000000 / 416; i++) {
        Node *node = make_node();
        node->next = first;
        first = node;
    }
    // Never freed: what lives at the end is what is looked at.
    auto *strings = new std::vector<std::string>(make_strings(10000));
    std::printf("%p %zu\nok\n", static_cast<void *>(first), strings->size());
    return 0;
}
