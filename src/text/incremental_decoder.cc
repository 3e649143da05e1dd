#include "text/incremental_decoder.h"

#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace rondo::text {

std::string IncrementalDecoder::feed(Token token) {
  if (skip_special_ && tokenizer_->is_special(token)) return {};
  pending_.append(tokenizer_->token_bytes(token));
  const std::size_t complete = pending_.size() - incomplete_suffix(pending_);
  std::string piece;
  append_lossy(std::string_view(pending_).substr(0, complete), piece);
  pending_.erase(0, complete);
  return piece;
}

std::string IncrementalDecoder::finish() {
  std::string piece;
  append_lossy(std::exchange(pending_, {}), piece);
  return piece;
}

}  // namespace rondo::text
