#include "file/builtin.h"

#include <string.h>

/* Begin and end of each file, from builtin_data.S. */
#define EMBEDDED(id) extern const unsigned char id[], id##_end[]
EMBEDDED(builtin_config);
EMBEDDED(builtin_generation_config);
EMBEDDED(builtin_model);
EMBEDDED(builtin_tokenizer);
EMBEDDED(builtin_tokenizer_config);

int builtin_at(size_t i, struct builtin_file *out)
{
    static const struct {
        const char *name;
        const unsigned char *begin, *end;
    } files[] = {
        {"config.json", builtin_config, builtin_config_end},
        {"generation_config.json", builtin_generation_config,
         builtin_generation_config_end},
        {"model.safetensors", builtin_model, builtin_model_end},
        {"tokenizer.json", builtin_tokenizer, builtin_tokenizer_end},
        {"tokenizer_config.json", builtin_tokenizer_config,
         builtin_tokenizer_config_end},
    };
    if (i >= sizeof files / sizeof *files)
        return -1;
    out->name = files[i].name;
    out->data = files[i].begin;
    out->size = (size_t)(files[i].end - files[i].begin);
    return 0;
}

int builtin_find(const char *name, struct builtin_file *out)
{
    struct builtin_file f;
    for (size_t i = 0; builtin_at(i, &f) == 0; i++) {
        if (strcmp(f.name, name) == 0) {
            *out = f;
            return 0;
        }
    }
    return -1;
}
