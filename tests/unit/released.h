/* A golden checkpoint with a config.json as released checkpoints have it. */
#ifndef TEST_RELEASED_H
#define TEST_RELEASED_H

#include <stdlib.h>
#include <unistd.h>

#include "file/map.h"
#include "tempdir.h"

/* Make temp_dir the checkpoint of dir with released.json as its config.json.
 * Returns false without such a file. */
static inline bool make_released(const char *dir)
{
    char path[256], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/released.json", dir);
    if (map_read_all(path, 1 << 20, &text, &n, NULL))
        return false;
    temp_clear();
    temp_write("config.json", text, n);
    free(text);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    char *weights = realpath(path, NULL);
    assert_non_null(weights);
    assert_int_equal(symlink(weights, temp_path("model.safetensors")), 0);
    free(weights);
    return true;
}

#endif
