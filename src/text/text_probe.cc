// Drives the module for text_oracle_test.py: requests on stdin, answers on stdout, all integers int32 in
// native order.
//   text_probe tokenizer FILE     request: op, length, bytes
//                                   op 'e' + flags (1: add_special_tokens, 2: no parse_special): ids of the
//                                   bytes op 'd', 's', 'i': decode ids; skipping special tokens;
//                                   incrementally
//                                 answer: length in bytes, bytes
//   text_probe chat KIND FOLDER   request: number of messages, generation prompt, then role and content of
//                                 each as length and bytes; answer: the rendered text
//   text_probe speed FILE CORPUS  prints "tokens seconds" (of CPU time) for one pass over the file, after one
//   to warm up
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/chat_template.h"
#include "text/incremental_decoder.h"
#include "text/tokenizer.h"

namespace {

using rondo::Token;

bool read_int(std::int32_t& value) {
  return std::fread(&value, sizeof value, 1, stdin) == 1;
}

std::string read_bytes() {
  std::int32_t size = 0;
  if (!read_int(size)) return {};
  std::string bytes(static_cast<std::size_t>(size), '\0');
  if (std::fread(bytes.data(), 1, bytes.size(), stdin) != bytes.size()) return {};
  return bytes;
}

void write_bytes(const void* data, std::size_t size) {
  const auto length = static_cast<std::int32_t>(size);
  std::fwrite(&length, sizeof length, 1, stdout);
  std::fwrite(data, 1, size, stdout);
  std::fflush(stdout);
}

int report(const rondo::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

std::string decode(const rondo::text::Tokenizer& tokenizer, char op, const std::vector<Token>& ids) {
  if (op != 'i') return tokenizer.decode(ids, op == 's');
  rondo::text::IncrementalDecoder decoder(tokenizer, false);
  std::string text;
  for (const Token id : ids) text += decoder.feed(id);
  return text + decoder.finish();
}

int serve_tokenizer(const char* file) {
  const auto tokenizer = rondo::text::Tokenizer::from_file(file);
  if (!tokenizer) return report(tokenizer.error());
  std::int32_t op = 0;
  while (read_int(op)) {
    const std::string bytes = read_bytes();
    const char kind = static_cast<char>(op & 0xFF);
    if (kind == 'e') {
      const std::vector<Token> ids =
          (*tokenizer)
              ->encode(bytes, {.add_special_tokens = (op & 0x100) != 0, .parse_special = (op & 0x200) == 0});
      write_bytes(ids.data(), ids.size() * sizeof(Token));
      continue;
    }
    std::vector<Token> ids(bytes.size() / sizeof(Token));
    std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(Token));
    const std::string text = decode(**tokenizer, kind, ids);
    write_bytes(text.data(), text.size());
  }
  return 0;
}

int serve_chat(const char* kind, const char* folder) {
  const auto chat = rondo::text::ChatTemplate::create(kind, folder);
  if (!chat) return report(chat.error());
  std::int32_t count = 0;
  std::int32_t add_generation_prompt = 0;
  while (read_int(count) && read_int(add_generation_prompt)) {
    std::vector<rondo::text::Message> messages(static_cast<std::size_t>(count));
    for (auto& message : messages) {
      message.role = read_bytes();
      message.content = read_bytes();
    }
    const auto text = chat->render(messages, add_generation_prompt != 0);
    if (!text) return report(text.error());
    write_bytes(text->data(), text->size());
  }
  return 0;
}

int measure(const char* file, const char* corpus) {
  const auto tokenizer = rondo::text::Tokenizer::from_file(file);
  if (!tokenizer) return report(tokenizer.error());
  const auto text = rondo::read_file(corpus);
  if (!text) return report(text.error());
  (void)(*tokenizer)->encode(*text);
  const std::clock_t start = std::clock();
  const std::size_t count = (*tokenizer)->encode(*text).size();
  std::printf("%zu %.6f\n", count, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "tokenizer" && argc == 3) return serve_tokenizer(argv[2]);
  if (mode == "chat" && argc == 4) return serve_chat(argv[2], argv[3]);
  if (mode == "speed" && argc == 4) return measure(argv[2], argv[3]);
  std::fprintf(stderr, "usage: text_probe tokenizer FILE | chat KIND FOLDER | speed FILE CORPUS\n");
  return 2;
}
