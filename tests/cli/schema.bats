# JSON schemas against an independent validator, python3-jsonschema. Longer runs:
#     tests/schema/check_schemas.py build/tests/schema_server --count 1000
#     tests/schema/check_answers.py ./qwick --count 1000

setup() {
    load helpers
    common_setup
    # with the packages of the site, which the python3 of helpers.bash leaves out
    command python3 -c 'import jsonschema' 2>/dev/null ||
        skip "no python3-jsonschema"
}

@test "generated schemas admit what the validator admits, and nothing else" {
    run command python3 tests/schema/check_schemas.py "${TESTS:-build/tests}/schema_server" \
        --count 100
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "answers under generated schemas are valid, or exit 6" {
    # a run of 1,000 has more than 95%; other CPUs draw other answers
    run command python3 tests/schema/check_answers.py "$QWICK" --count 20 --least 75
    echo "$output"
    [ "$status" -eq 0 ]
}
