// Many prompts at once: each argument is a request, and the answers come in the
// order in which they end.
//
//     c++ -std=c++17 batch.cpp $(pkg-config --cflags --libs qwick) -o batch
//     ./batch "list files" "what is grep?"
//
// QWICK_MODEL names a model; without it the built-in one answers.
#include <qwick.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

// Errors as exceptions, resources as owners.
void check(int rc, const qwick_err &e)
{
    if (rc != 0)
        throw std::runtime_error(e.msg);
}

template <auto Free> struct Freed {
    template <typename T> void operator()(T *p) const
    {
        Free(p);
    }
};
using Engine = std::unique_ptr<qwick_engine, Freed<qwick_engine_close>>;
using Batch = std::unique_ptr<qwick_batch, Freed<qwick_batch_free>>;
using Chat = std::unique_ptr<qwick_chat, Freed<qwick_chat_free>>;
using Ids = std::unique_ptr<int32_t, Freed<std::free>>;

struct Request {
    std::string prompt;
    bool failed = false;
};

// A qwick_done_fn. An exception must not leave it: C code has called it.
int done(void *, void *tag, qwick_result *r, const qwick_err *e)
{
    auto *request = static_cast<Request *>(tag);
    request->failed = e != nullptr;
    if (e)
        std::cerr << request->prompt << ": " << e->msg << "\n";
    else
        std::cout << request->prompt << "\t" << std::string(r->text, r->n_text)
                  << "\n";
    return 0;
}

void add(qwick_engine *eng, qwick_batch *batch, Request &request)
{
    qwick_chat_options chat_options = qwick_chat_defaults();
    qwick_generate_options options = qwick_generate_defaults();
    qwick_sampling sampling = qwick_sampling_neutral();
    qwick_chat *chat;
    qwick_err e;
    int32_t *ids;
    size_t n;
    check(qwick_chat_create(&chat, &e), e);
    const Chat chat_owner(chat);
    check(qwick_chat_add(chat, "user", request.prompt.data(),
                         request.prompt.size(), &e),
          e);
    chat_options.think = QWICK_THINK_OFF;
    check(qwick_chat_encode(chat, eng, &chat_options, nullptr, 0, &ids, &n,
                            &options.in_think, &e),
          e);
    const Ids owner(ids); // the batch copies them
    sampling.temperature = 0;
    options.sampling = &sampling; // the batch copies it
    options.max_tokens = 200;
    check(qwick_batch_add(batch, ids, n, &options, &request, &e), e);
}

int run(int argc, char **argv)
{
    qwick_engine_options engine_options = qwick_engine_defaults();
    qwick_batch_options batch_options = qwick_batch_defaults();
    qwick_engine *eng;
    qwick_batch *batch;
    qwick_err e;
    engine_options.model = std::getenv("QWICK_MODEL");
    batch_options.done = done;
    check(qwick_engine_open(&eng, &engine_options, &e), e);
    const Engine engine_owner(eng);
    check(qwick_batch_create(&batch, eng, &batch_options, &e), e);
    const Batch batch_owner(batch);

    std::vector<Request> requests;
    for (int i = 1; i < argc; i++)
        requests.push_back(Request{argv[i]});
    for (Request &request : requests)
        add(eng, batch, request);
    check(qwick_batch_run(batch, &e), e);

    for (const Request &request : requests)
        if (request.failed)
            return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc, argv);
    } catch (const std::exception &x) {
        std::cerr << "batch: " << x.what() << "\n";
        return EXIT_FAILURE;
    }
}
