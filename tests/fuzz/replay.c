/* Run the inputs that the repository keeps: replay CORPUS. CORPUS has a
 * directory for each target. Prints the number of inputs of each; ends with
 * status 1 if a target takes none of its inputs. With a second argument, the
 * name of a target: its inputs only. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/map.h"
#include "targets.h"

static int is_file(const struct dirent *f)
{
    return f->d_name[0] != '.';
}

/* Returns the number of inputs, or -1. */
static int replay(const struct fuzz_target *t, const char *corpus)
{
    char path[512];
    struct dirent **files;
    size_t taken = 0;
    snprintf(path, sizeof path, "%s/%s", corpus, t->name);
    int n = scandir(path, &files, is_file, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no inputs\n", path);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        struct qwick_err e;
        char *text;
        size_t len;
        snprintf(path, sizeof path, "%s/%s/%s", corpus, t->name,
                 files[i]->d_name);
        if (map_read_all(path, 1 << 24, &text, &len, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            return -1;
        }
        /* named before it runs: a crash leaves the name */
        fprintf(stderr, "%s\n", path);
        taken += fuzz_one(t, text, len) == 0;
        free(text);
        free(files[i]);
    }
    free(files);
    printf("%s: %d inputs, %zu taken\n", t->name, n, taken);
    if (!taken)
        fprintf(stderr, "%s: no input is taken\n", t->name);
    return taken ? n : -1;
}

int main(int argc, char **argv)
{
    int bad = 0, n = 0;
    if (argc < 2 || argc > 3) {
        fputs("Usage: replay CORPUS [TARGET]\n", stderr);
        return 2;
    }
    for (const struct fuzz_target *t = fuzz_targets; t->name; t++) {
        if (argc == 3 && strcmp(t->name, argv[2]) != 0)
            continue;
        int k = replay(t, argv[1]);
        bad |= k < 0;
        n += k > 0 ? k : 0;
    }
    printf("%d inputs\n", n);
    return bad || !n;
}
