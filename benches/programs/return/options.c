/* Options are checked here once; the rest of the program trusts them. */
#include "return/return.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const afterwards_names[AFTERWARDS] = {"asleep", "gone", "busy", "computing"};

static void usage(int status)
{
    FILE *out = status ? stderr : stdout;
    fprintf(out,
            "usage: return [options] PATTERN\n"
            "  --mib N           requested at the peak, all threads together (512)\n"
            "  --threads N       worker threads (4)\n"
            "  --after WHAT      the threads afterwards: asleep, gone, busy with small blocks,\n"
            "                    computing without a request (asleep)\n"
            "  --stacks          the base is read before the threads start, so what their\n"
            "                    stacks cost counts too\n"
            "  --low B --high B  sizes, log-uniform (the pattern's)\n"
            "  --survive SHARE   of the objects (the pattern's)\n"
            "  --order WHAT      of the frees: random, allocation (random)\n"
            "  --rest S          seconds watched after the burst (6)\n"
            "  --every S         between two readings (0.25)\n"
            "  --refuse LIST     system calls refused: process_madvise, membarrier, madvise,\n"
            "                    mremap; each may end in :ENOSYS (EPERM)\n"
            "                    The filter is inherited, as in a container; with --late the\n"
            "                    program puts it on itself when the allocator already runs\n"
            "  --seed N          sizes and survivors, and all of a generated pattern (1)\n"
            "patterns:\n");
    for (size_t i = 0; i < pattern_count; i++)
        fprintf(out, "  %-12s %s\n", patterns[i].name, patterns[i].what);
    exit(status);
}

void options_parse(int argc, char **argv, struct plan *plan, struct options *options)
{
    static const struct option names[] = {
        {"mib", 1, 0, 'm'},  {"threads", 1, 0, 't'}, {"after", 1, 0, 'a'}, {"low", 1, 0, 'l'},
        {"high", 1, 0, 'h'}, {"survive", 1, 0, 's'}, {"rest", 1, 0, 'r'},  {"every", 1, 0, 'e'},
        {"refuse", 1, 0, 'f'}, {"seed", 1, 0, 'd'},  {"order", 1, 0, 'o'}, {"stacks", 0, 0, 'k'}, {"late", 0, 0, 'L'}, {"help", 0, 0, 'H'}, {0, 0, 0, 0},
    };
    double low = 0, high = 0, survive = -1, mib = 512;
    unsigned threads = 4;
    plan->seed = 1;
    plan->random_order = 1;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'm': mib = atof(optarg); break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'l': low = atof(optarg); break;
        case 'h': high = atof(optarg); break;
        case 's': survive = atof(optarg); break;
        case 'r': options->rest_s = atof(optarg); break;
        case 'e': options->every_s = atof(optarg); break;
        case 'f': options->refuse = optarg; break;
        case 'd': plan->seed = strtoull(optarg, NULL, 10); break;
        case 'k': options->stacks = true; break;
        case 'L': options->refuse_late = true; break;
        case 'o':
            plan->random_order = strcmp(optarg, "random") == 0;
            if (!plan->random_order && strcmp(optarg, "allocation") != 0)
                usage(64);
            break;
        case 'a': {
            int i = 0;
            while (i < AFTERWARDS && strcmp(optarg, afterwards_names[i]) != 0)
                i++;
            if (i == AFTERWARDS)
                usage(64);
            plan->after = (enum afterwards)i;
            break;
        }
        case 'H': usage(0); break;
        default: usage(64);
        }
    }
    if (optind + 1 != argc || !(plan->pattern = pattern_named(argv[optind])))
        usage(64);
    plan->threads = plan->pattern->threads ? plan->pattern->threads : threads;
    plan->low_bytes = low > 0 ? low : plan->pattern->low_bytes;
    plan->high_bytes = high > 0 ? high : plan->pattern->high_bytes;
    plan->survive = survive >= 0 ? survive : plan->pattern->survive;
    plan->total_bytes = (size_t)(mib * 1024 * 1024);
    if (plan->pattern->draw)
        plan->pattern->draw(plan);
    plan->ledger_count = plan->pattern->ledgers(plan);
    if (plan->threads < 1 || plan->threads > THREADS_MOST || plan->low_bytes < 1 || plan->high_bytes > 1u << 30
        || plan->low_bytes > plan->high_bytes || plan->ledger_count > LEDGERS_MOST || plan->total_bytes == 0 || options->every_s <= 0
        || options->rest_s / options->every_s + 2 > SAMPLES_MOST
        || (strcmp(plan->pattern->name, "handoff") == 0 && plan->threads < 2))
        usage(64);
}
