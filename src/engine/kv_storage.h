// KvStorage: the memory behind the KV blocks of one engine, and its view per layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/types.h"
#include "kv/block_pool.h"
#include "model/spec.h"

namespace rondo::engine {

/// Holds `num_blocks` blocks of keys and values for all layers; block b is contiguous: layer by layer, keys
/// then values. Starts as zeros, and pages that were never written cost no memory. Does not know which blocks
/// are in use. One owner thread.
class KvStorage final {
 public:
  /// Bytes of one block over all layers.
  static std::size_t block_bytes(const model::ModelSpec& spec);
  /// kResourceExhausted if the address space is not to be had.
  static Result<KvStorage> create(const model::ModelSpec& spec, std::int32_t num_blocks);

  KvStorage(KvStorage&& other) noexcept;
  KvStorage& operator=(KvStorage&& other) noexcept;
  ~KvStorage();

  const kernels::KvView& layer(std::int32_t l) const { return layers_[static_cast<std::size_t>(l)]; }
  std::size_t bytes() const { return bytes_; }
  /// Copies whole blocks, which includes the slots asked for; slots behind them are overwritten before they
  /// are read.
  void copy(std::span<const kv::BlockCopy> copies);
  /// Writes whole blocks out, one after the other; `bytes` holds block_bytes for each.
  void read(std::span<const BlockId> blocks, std::span<std::byte> bytes) const;
  /// Fills one block from what read() wrote.
  void write(std::int32_t block, std::span<const std::byte> bytes);

 private:
  KvStorage(std::byte* base, std::size_t bytes, const model::ModelSpec& spec);
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<kernels::KvView> layers_;
};

}  // namespace rondo::engine
