#include "model/foreign.h"

#include <stdio.h>
#include <string.h>

#include "model/quant.h"

/* Values of quant_method, and of mode in MLX's files. */
static const struct {
    const char *value, *name;
} forms[] = {
    {"fbgemm_fp8", "FBGEMM FP8"},
    {"finegrained_fp8", "FP8"},
    {"gptq", "GPTQ"},
    {"gptq_v2", "GPTQ"},
    {"awq", "AWQ"},
    {"marlin", "Marlin"},
    {"modelopt", "ModelOpt (NVFP4 or FP8)"},
    {"bitsandbytes", "bitsandbytes"},
    {"exl2", "EXL2"},
    {"exl3", "EXL3"},
    {"compressed-tensors", "compressed-tensors"},
    {"hqq", "HQQ"},
    {"aqlm", "AQLM"},
    {"auto-round", "AutoRound"},
    {"intel/auto-round", "AutoRound"},
    {"bitnet", "BitNet"},
    {"eetq", "EETQ"},
    {"higgs", "HIGGS"},
    {"quanto", "Quanto"},
    {"quark", "Quark"},
    {"spqr", "SpQR"},
    {"torchao", "TorchAO"},
    {"vptq", "VPTQ"},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static void name_of(const struct json_value *v, char *out, size_t n)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        if (json_equals(v, forms[i].value)) {
            snprintf(out, n, "%s", forms[i].name);
            return;
        }
    }
    section_describe(v, out, n);
}

/* Whether qwick reads the form that quant_method or mode names. */
static bool is_read(const struct json_value *v)
{
    return json_equals(v, "affine") || json_equals(v, "mxfp4") ||
           json_equals(v, "mxfp8") || json_equals(v, "nvfp4");
}

bool foreign_name(const struct json_value *config, char *out, size_t n)
{
    static const char *const objects[] = {"quantization_config",
                                          "quantization"};
    for (size_t i = 0; i < 2; i++) {
        const struct json_value *q = json_get(config, objects[i]);
        const struct json_value *method = json_get(q, "quant_method");
        const struct json_value *mode = json_get(q, "mode");
        if (quant_is_fp8(q) || quant_is_stored(q) || quant_is_transposed(q))
            return false;
        if (method && method->type != JSON_NULL && !is_read(method)) {
            name_of(method, out, n);
            return true;
        }
        if (json_is(mode, JSON_STRING) && !is_read(mode)) {
            name_of(mode, out, n);
            return true;
        }
    }
    return false;
}

int foreign_refuse(const struct section *s, const char *key,
                   struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, key);
    char name[96], value[64];
    name_of(v, name, sizeof name);
    /* of some systems qwick reads some forms: this field names the form */
    const char *form = json_equals(v, "compressed-tensors") ? "format"
                       : json_equals(v, "modelopt")         ? "quant_algo"
                                                            : key;
    if (!section_absent(s, form)) {
        key = form;
        v = json_get(s->v, key);
    }
    section_describe(v, value, sizeof value);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s%s: is %s; %s weights are not "
                   "supported: " FOREIGN_INSTEAD,
                   s->path, s->in, key, value, name);
}
