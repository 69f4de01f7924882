#!/usr/bin/env bats
# generation_config.json: fields that are applied, whatever the options are, and
# fields that are refused.
# Also --suffix and --logit-bias.
load helpers

setup() {
    common_setup
    copy_of models/demo m
    cp "$T/m/generation_config.json" "$T/good"
}

# Write the config with these fields: a Python expression of a dict.
config() {
    cp "$T/good" "$T/m/generation_config.json"
    json_edit "$T/m/generation_config.json" "o.update($1)"
}

ids() { q "$@" --json 2>/dev/null | jget '" ".join(map(str, o["tokens"]))'; }

TEXT="echo a; echo a; echo a; echo"

@test "the repetition penalty counts in greedy search, too" {
    how=(--raw --ignore-eos -n 40 --exact "$TEXT")
    plain=$(ids "${how[@]}")
    want=$(ids --greedy --repeat-penalty 1.3 "${how[@]}")
    [ "$plain" != "$want" ]
    config 'dict(repetition_penalty=1.3)'
    for more in "" --greedy "--temp 0" "--lookup 8" "--lookup 0" "--prefill-chunk 3" "-t 2"; do
        # shellcheck disable=SC2086 # words of $more
        equal "$(ids -m "$T/m" $more "${how[@]}")" "$want"
    done
    config 'dict(repetition_penalty=1.3, do_sample=True)'
    equal "$(ids -m "$T/m" --greedy "${how[@]}")" "$want"
    # an option wins, and so does a record's field
    equal "$(ids -m "$T/m" --greedy --repeat-penalty 1 "${how[@]}")" "$plain"
    python3 -c 'import json, sys
for more in ({}, {"repeat_penalty": 1, "temperature": 0}, {"temperature": 0}):
    print(json.dumps({"prompt": sys.argv[1], **more}))' "$TEXT" >"$T/in"
    config 'dict(repetition_penalty=1.3)'
    q batch -m "$T/m" --raw --ignore-eos -n 40 --exact -i "$T/in" >"$T/out" 2>/dev/null
    jlines '[x["tokens"] for x in o] == [[int(t) for t in a.split()]
        for a in ("'"$want"'", "'"$plain"'", "'"$want"'")]' <"$T/out"
    # GGUF has a key for it
    q quantize -m "$T/m" --format gguf --type BF16 -o "$T/q.gguf" 2>/dev/null
    equal "$(ids -m "$T/q.gguf" --raw --ignore-eos -n 8 "$TEXT")" \
        "$(ids -m "$T/m" --raw --ignore-eos -n 8 "$TEXT")"
}

@test "suppressed tokens are never drawn, or not first" {
    how=(--raw --ignore-eos -n 12 --exact "$TEXT")
    read -r first second rest <<<"$(ids "${how[@]}")"
    [ -n "$rest" ]
    none() { # ID...: none of them is in the answer
        local t
        for t in $(ids -m "$T/m" "${more[@]}" "${how[@]}"); do
            [[ " $* " != *" $t "* ]] || return 1
        done
    }
    for more in "" --greedy "--temp 1 --seed 7" "--temp 1.5 --top-k 5" "--lookup 8"; do
        # shellcheck disable=SC2206 # words
        more=($more)
        config "dict(suppress_tokens=[$first, $second, -1, 999999])"
        none "$first" "$second"
        config "dict(bad_words_ids=[[$first], [$second]])"
        none "$first" "$second"
        config "dict(begin_suppress_tokens=[$first])"
        [[ "$(ids -m "$T/m" "${more[@]}" "${how[@]}") " != "$first "* ]]
    done
    # a token that may not be first may come later, in each answer
    config "dict(begin_suppress_tokens=[7, 8])"
    equal "$(ids -m "$T/m" "${how[@]}")" "$(ids "${how[@]}")"
    # a constraint cannot bring them back
    config 'dict(suppress_tokens=list(range(0, 6135)))'
    fails 2 "the model has no token that begins such a text" -m "$T/m" --regex 'a+' hi
    config 'dict(suppress_tokens="7")'
    fails 3 "generation_config.json: suppress_tokens: must be token ids" -m "$T/m" hi
    config 'dict(bad_words_ids=[7])'
    fails 3 "bad_words_ids: must be lists of token ids" -m "$T/m" hi
}

@test "min_new_tokens and min_length put the end off" {
    ask="list all listening tcp ports"
    n=$(q --json "$ask" | jget 'len(o["tokens"])')
    [ "$n" -gt 1 ] && [ "$n" -lt 20 ]
    prompt=$(q --json "$ask" | jget 'o["usage"]["prompt_tokens"]')
    for field in "min_new_tokens=25" "min_length=$((prompt + 25))"; do
        config "dict($field)"
        for more in "" --greedy "--temp 0.8 --seed 3" "--lookup 8"; do
            # shellcheck disable=SC2086 # words of $more
            q -m "$T/m" $more --json --loop-guard 0 -n 60 "$ask" >"$T/out" 2>/dev/null
            jget 'o["usage"]["completion_tokens"] > 25' <"$T/out" | grep -qx True
        done
    done
    config 'dict(min_length=3, min_new_tokens=0)'
    equal "$(q -m "$T/m" "$ask")" "$(q "$ask")"
    config 'dict(min_new_tokens=-1)'
    fails 3 "min_new_tokens: must be an integer from 0, is -1" -m "$T/m" hi
    # answers of an unfinished run with other rules are not taken over
    echo '{"prompt":"hi"}' >"$T/in"
    config 'dict(min_new_tokens=1)'
    q batch -m "$T/m" -n 2 -i "$T/in" -o "$T/answers" 2>/dev/null
    config 'dict(min_new_tokens=2)'
    fails 2 "another model" batch -m "$T/m" -n 2 -i "$T/in" -o "$T/answers"
    run -0 --separate-stderr q quantize -m "$T/m" --format gguf -o "$T/q.gguf"
    [[ $stderr == "qwick: warning: generation_config.json: suppressed tokens and minimum lengths are left out"* ]]
    config 'dict(num_beams=4)'
    run -0 --separate-stderr q quantize -m "$T/m" --format gguf -o "$T/q2.gguf"
    [[ $stderr == "qwick: warning: generation_config.json: num_beams: 4 is not supported" ]]
}

@test "what we do not have is refused by name" {
    echo '{"prompt":"hi"}' >"$T/in"
    while read -r field value shown; do
        grep -q "fB$field" man/qwick.1
        config "dict($field=$value)"
        fails 3 "m/generation_config.json: $field: ${shown:-$value} is not supported" \
            -m "$T/m" -n 1 hi
        fails 3 "$field" batch -m "$T/m" -n 1 -i "$T/in"
    done <<'FIELDS'
no_repeat_ngram_size 3
encoder_no_repeat_ngram_size 2
encoder_repetition_penalty 1.5
exponential_decay_length_penalty [10,1.1] an array
sequence_bias [[[1],2.0]] an array
guidance_scale 1.5
forced_bos_token_id 7
forced_eos_token_id 0
forced_decoder_ids [[1,2]] an array
constraints [1] an array
force_words_ids [[1]] an array
watermarking_config {"a":1} an object
stop_strings ["x"] an array
token_healing True true
num_return_sequences 2
num_beams 4
num_beam_groups 2
diversity_penalty 0.5
penalty_alpha 0.6
dola_layers "low"
FIELDS
    config 'dict(bad_words_ids=[[1, 2]])'
    fails 3 "bad_words_ids: a list of 2 ids is not supported" -m "$T/m" hi
    # verbs that generate nothing do not need it
    q tokenize -m "$T/m" hi >/dev/null
    q inspect -m "$T/m" >/dev/null
    q score -m "$T/m" "hi there" >/dev/null 2>&1
    q choose -m "$T/m" hi -a a -a b >/dev/null
}

@test "what counts only for drawn tokens is refused only there" {
    echo '{"prompt":"hi"}' >"$T/in"
    for field in typical_p=0.9 epsilon_cutoff=0.1 eta_cutoff=0.1 top_h=0.4; do
        grep -q "fB${field%=*}" man/qwick.1
        config "dict($field)"
        q -m "$T/m" -n 1 hi >/dev/null 2>&1
        fails 3 "${field%=*}: ${field#*=} is not supported" -m "$T/m" -n 1 --temp 1 hi
        config "dict($field, do_sample=True)"
        fails 3 "${field%=*}" -m "$T/m" -n 1 hi
        fails 3 "${field%=*}" batch -m "$T/m" -n 1 -i "$T/in"
        q -m "$T/m" -n 1 --greedy hi >/dev/null 2>&1
        q batch -m "$T/m" -n 1 --greedy -i "$T/in" >/dev/null 2>&1
    done
}

@test "fields and values without effect are silent" {
    want=$(q "list all listening tcp ports")
    config 'dict(no_repeat_ngram_size=0, encoder_repetition_penalty=1.0, guidance_scale=None,
num_beams=1, num_beam_groups=1, diversity_penalty=0.0, penalty_alpha=None, typical_p=1.0,
epsilon_cutoff=0.0, eta_cutoff=0.0, bad_words_ids=None, suppress_tokens=[], forced_eos_token_id=None,
token_healing=False, sequence_bias={}, stop_strings=None, min_length=0, length_penalty=1.0,
early_stopping=False, max_length=20, max_new_tokens=2048, use_cache=True, cache_implementation="hybrid",
renormalize_logits=True, remove_invalid_values=True, num_assistant_tokens=20, bos_token_id=1,
pad_token_id=2, transformers_version="4.37.0", prompt_lookup_num_tokens=None, other=7)'
    run -0 --separate-stderr q -m "$T/m" "list all listening tcp ports"
    equal "$output" "$want"
    [ -z "$stderr" ]
}

@test "--suffix: the prompt has the tokens for filling in" {
    fails 2 "--suffix: the model has no tokens <|fim_prefix|>, <|fim_suffix|> and <|fim_middle|>" \
        --suffix x hi
    for names in "<|fim_prefix|> <|fim_suffix|> <|fim_middle|>" \
        "<fim_prefix> <fim_suffix> <fim_middle>"; do
        read -r prefix suffix middle <<<"$names"
        copy_of models/demo fim
        sed -i "s/\"<tool_call>\"/\"$prefix\"/; s/\"<\/tool_call>\"/\"$suffix\"/
            s/\"<tool_response>\"/\"$middle\"/" "$T/fim/tokenizer.json" "$T/fim/tokenizer_config.json"
        prompt=$(q tokenize -m "$T/fim" "${prefix}echo \$x${suffix}; done$middle" | tr ' ' ,)
        how=(-m "$T/fim" --exact --greedy --ignore-eos -n 6)
        want=$(ids "${how[@]}" --prompt-ids "$prompt")
        equal "$(ids "${how[@]}" --suffix "; done" 'echo $x')" "$want"
        printf 'echo $x\n' >"$T/f"
        equal "$(ids "${how[@]}" --suffix "; done" -f "$T/f")" "$want"
        # text is no control token
        equal "$(q "${how[@]}" --json --suffix "$middle" a | jget 'o["prompt_ids"].count('"${prompt##*,}"')')" 1
        rm -r "$T/fim"
    done
    fails 2 "--system: has no effect with --suffix" --suffix x -s y hi
    fails 2 "--suffix: cannot be combined with --overflow" --suffix x --overflow head hi
    fails 2 "--chat-json: has no effect with --suffix" --suffix x --chat-json f
    fails 2 "no prompt" --suffix x </dev/null
}

@test "--logit-bias: as the member of a record; ids and ranges are checked" {
    how=(--exact --greedy --ignore-eos --raw -n 6 "echo a")
    first=$(ids "${how[@]}" | cut -d ' ' -f 1)
    "$QWICK" batch --exact --greedy --ignore-eos --raw -n 6 >"$T/out" <<J
{"prompt":"echo a","logit_bias":{"$first":-100,"5":3.5}}
J
    want=$(jget '" ".join(map(str, o["tokens"]))' <"$T/out")
    equal "$(ids --logit-bias "$first=-100" --logit-bias 5=3.5 "${how[@]}")" "$want"
    [[ " $want " != *" $first "* ]]
    equal "$(ids --logit-bias 7=100 "${how[@]}")" "7 7 7 7 7 7"
    equal "$(q --logit-bias 7=100 --samples 2 --temp 1 --ignore-eos --raw -n 2 --json a | jlines '[x["tokens"] for x in o] == [[7, 7]] * 2' && echo ok)" ok
    for bad in 7 =1 7= x=1 -1=1 7=x 7=101 7=-100.5 7=nan 7=inf 99999999999=1 "7=1 "; do
        fails 2 "--logit-bias: \"$bad\": is not ID=B, a token id and a number from -100 to 100" \
            "--logit-bias=$bad" -m "$T/none" hi
    done
    fails 2 "--logit-bias: 7: is given twice" --logit-bias 7=1 --logit-bias 7=2 hi
    fails 2 "--logit-bias: 6144 is not a token id from 0 to 6143" --logit-bias 6144=1 hi
}
