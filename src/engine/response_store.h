// ResponseStore: the requests of a rollout and what their responses have, where every instance finds them.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/id.h"
#include "base/status.h"
#include "engine/engine.h"

namespace rondo::engine {

/// Holds each request with the response's tokens up to the end of its last chunk, and finished responses
/// until they are taken. So what an instance had generated since is all that is lost when it fails. Any
/// thread.
class ResponseStore final {
 public:
  /// A new request, without progress or stored KV. The id is not in use.
  void add(Request request);
  /// The request with its progress so far.
  Request request(RequestId id) const;
  /// The chunk is over: the response has these tokens.
  void extend(RequestId id, const ProgressView& progress);
  void finish(Response response);
  /// The finished response, which leaves the store with its request; nullopt if it is not finished.
  std::optional<Response> take(RequestId id);
  void clear();

 private:
  struct Entry {
    Request request;
    std::optional<Response> response;
  };
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, Entry> entries_;
};

}  // namespace rondo::engine
