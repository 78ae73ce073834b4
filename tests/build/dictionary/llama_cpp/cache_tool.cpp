// Calls llama.cpp's own lookup cache for tests and measurements. Built together with its common/ngram-cache.cpp.
//
//   cache_tool copy FROM TO                          load a cache and save it
//   cache_tool count TEXTS MIN MAX TO                count n-grams of MIN to MAX tokens and save them
//   cache_tool draft CACHE dynamic|static TEXTS N    print a draft of at most N tokens after each text, a line each
//   cache_tool replay CACHE dynamic|static TEXTS N   print tokens, passes, drafted and accepted tokens
//
// TEXTS is a file of int32: for each text its length, then its token ids.
#include "ngram-cache.h"

#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

// What ngram-cache.cpp needs of the rest of llama.cpp.
extern "C" int64_t ggml_time_ms(void) { return 0; }
extern "C" void ggml_abort(const char * file, int line, const char * format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    abort();
}
struct common_log * common_log_main() { return nullptr; }
void common_log_add(struct common_log *, enum ggml_log_level, const char *, ...) {}
int common_log_get_verbosity_thold(void) { return -1; }

using Tokens = std::vector<llama_token>;

static std::vector<Tokens> read_texts(const char * path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<Tokens> texts;
    int32_t length;
    while (file.read(reinterpret_cast<char *>(&length), 4)) {
        Tokens tokens(length);
        file.read(reinterpret_cast<char *>(tokens.data()), 4 * (std::streamsize) length);
        texts.push_back(tokens);
    }
    return texts;
}

int main(int argc, char ** argv) {
    const std::string job = argc > 1 ? argv[1] : "";
    if (job == "copy" && argc == 4) {
        common_ngram_cache cache = common_ngram_cache_load(argv[2]);
        common_ngram_cache_save(cache, argv[3]);
        return 0;
    }
    if (job == "count" && argc == 6) {
        common_ngram_cache cache;
        for (Tokens & text : read_texts(argv[2])) {
            common_ngram_cache_update(cache, atoi(argv[3]), atoi(argv[4]), text, text.size(), false);
        }
        common_ngram_cache_save(cache, argv[5]);
        return 0;
    }
    if ((job != "draft" && job != "replay") || argc != 6) {
        fprintf(stderr, "see the first lines of the source\n");
        return 2;
    }
    common_ngram_cache cache = common_ngram_cache_load(argv[2]), none, own;
    const bool dynamic = !strcmp(argv[3], "dynamic");
    const int most = atoi(argv[5]);
    long tokens = 0, passes = 0, drafted = 0, accepted = 0;
    for (Tokens & text : read_texts(argv[4])) {
        size_t at = job == "draft" ? text.size() : 0;
        while (true) {
            Tokens history(text.begin(), text.begin() + at), draft;
            if (at >= LLAMA_NGRAM_MAX) {
                draft.push_back(history.back());
                common_ngram_cache_draft(history, draft, most, LLAMA_NGRAM_MIN, LLAMA_NGRAM_MAX, own,
                                         dynamic ? cache : none, dynamic ? none : cache);
                draft.erase(draft.begin());
            }
            if (job == "draft") {
                for (llama_token token : draft) {
                    printf("%d ", token);
                }
                printf("\n");
                break;
            }
            if (at >= text.size()) {
                break;
            }
            size_t right = 0;
            while (right < draft.size() && at + right < text.size() && draft[right] == text[at + right]) {
                ++right;
            }
            const size_t committed = std::min(right + 1, text.size() - at);
            tokens += committed;
            passes += 1;
            drafted += draft.size();
            accepted += right;
            at += committed;
        }
    }
    if (job == "replay") {
        printf("%ld %ld %ld %ld\n", tokens, passes, drafted, accepted);
    }
}
