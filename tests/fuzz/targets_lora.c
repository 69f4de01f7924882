/* Files of LoRA adapters. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "model/lora_files.h"
#include "targets.h"

static const char peft_config[] =
    "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4}";
static const char peft_header[] =
    "{\"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight\":"
    "{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
    "\"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight\":"
    "{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[32,64]}}";
static const char mlx_config[] =
    "{\"fine_tune_type\":\"lora\","
    "\"lora_parameters\":{\"rank\":2,\"scale\":2,\"dropout\":0}}";
static const char mlx_header[] =
    "{\"model.layers.0.mlp.up_proj.lora_a\":"
    "{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]},"
    "\"model.layers.0.mlp.up_proj.lora_b\":"
    "{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[32,64]}}";

/* Write a safetensors file with 64 bytes of data. */
static void put_tensors(const char *name, const char *header, size_t n)
{
    struct buf b = {0};
    char data[64] = {0};
    for (int i = 0; i < 8; i++)
        CHECK(buf_putc(&b, (char)(n >> 8 * i)) == 0);
    CHECK(buf_append(&b, header, n) == 0 &&
          buf_append(&b, data, sizeof data) == 0);
    fuzz_file(name, b.data, b.len);
    buf_free(&b);
}

static void use_pairs(const struct lora_file *f)
{
    CHECK(f->n_pairs > 0);
    for (size_t i = 0; i < f->n_pairs; i++) {
        const struct lora_pair *p = &f->pairs[i];
        CHECK(p->a && p->b && p->a->rank == 2 && p->b->rank == 2);
        CHECK(lora_pair_rank(f, p) > 0 && isfinite(p->factor));
        CHECK(lora_pair_rank(f, p) == p->b->shape[f->transposed ? 0 : 1]);
    }
}

/* The first byte chooses the file: the config or the header of PEFT, those of
 * mlx-lm, or a GGUF file. The other file is a valid one. */
int fuzz_adapter(const char *in, size_t n, struct qwick_err *e)
{
    static const char peft[] = "adapter_model.safetensors",
                      mlx[] = "adapters.safetensors";
    unsigned which = n ? (unsigned char)in[0] % 5 : 0;
    bool is_mlx = which == 2 || which == 3;
    const char *config = is_mlx ? mlx_config : peft_config;
    const char *header = is_mlx ? mlx_header : peft_header;
    const char *path = fuzz_path(""); /* the directory */
    size_t n_config = strlen(config), n_header = strlen(header);
    struct lora_file f;
    if (which == 0 || which == 2) {
        config = in + (n > 0);
        n_config = n - (n > 0);
    } else if (which != 4) {
        header = in + 1;
        n_header = n - 1;
    }
    (void)unlink(fuzz_path(is_mlx ? peft : mlx));
    put_tensors(is_mlx ? mlx : peft, header, n_header);
    fuzz_file("adapter_config.json", config, n_config);
    if (which == 4)
        path = fuzz_file("adapter.gguf", in + 1, n - 1);
    if (lora_file_open(&f, path, e)) {
        CHECK(!f.n_pairs && !f.path && !f.set && !f.gguf);
        return -1;
    }
    use_pairs(&f);
    lora_file_close(&f);
    return 0;
}
