#include "engine/kv_storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace rondo::engine {
namespace {

kernels::KvView layer_view(const model::ModelSpec& spec) {
  kernels::KvView view;
  view.dtype = spec.dtype;
  view.kv_heads = spec.kv_heads;
  view.head_dim = spec.head_dim;
  return view;
}

}  // namespace

std::size_t KvStorage::block_bytes(const model::ModelSpec& spec) {
  return static_cast<std::size_t>(spec.layers) * 2 * layer_view(spec).side_bytes();
}

Result<KvStorage> KvStorage::create(const model::ModelSpec& spec, std::int32_t num_blocks) {
  const std::size_t bytes = block_bytes(spec) * static_cast<std::size_t>(num_blocks);
  const std::size_t memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > memory)
    return fail(Code::kResourceExhausted,
                "a KV pool of {} MiB does not fit this machine's {} MiB; lower engine.kv_memory", bytes >> 20,
                memory >> 20);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return fail(Code::kResourceExhausted, "no memory for a KV pool of {} MiB; lower engine.kv_memory",
                bytes >> 20);
  prefer_huge_pages(base, bytes);
  return KvStorage(static_cast<std::byte*>(base), bytes, spec);
}

KvStorage::KvStorage(std::byte* base, std::size_t bytes, const model::ModelSpec& spec)
    : base_(base), bytes_(bytes) {
  kernels::KvView view = layer_view(spec);
  view.base = base;
  view.block_stride = block_bytes(spec);
  for (std::int32_t l = 0; l < spec.layers; ++l) {
    view.key_offset = static_cast<std::size_t>(l) * 2 * view.side_bytes();
    view.value_offset = view.key_offset + view.side_bytes();
    layers_.push_back(view);
  }
}

KvStorage::KvStorage(KvStorage&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      layers_(std::move(other.layers_)) {}

KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(layers_, other.layers_);
  return *this;
}

KvStorage::~KvStorage() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

void KvStorage::copy(std::span<const kv::BlockCopy> copies) {
  if (copies.empty()) return;
  const std::size_t stride = layers_.front().block_stride;
  for (const kv::BlockCopy& c : copies)
    std::memcpy(base_ + static_cast<std::size_t>(c.to.value()) * stride,
                base_ + static_cast<std::size_t>(c.from.value()) * stride, stride);
}

void KvStorage::read(std::span<const BlockId> blocks, std::span<std::byte> bytes) const {
  const std::size_t stride = layers_.front().block_stride;
  RONDO_CHECK_EQ(bytes.size(), blocks.size() * stride);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    std::memcpy(bytes.data() + i * stride, base_ + static_cast<std::size_t>(blocks[i].value()) * stride,
                stride);
}

void KvStorage::write(std::int32_t block, std::span<const std::byte> bytes) {
  const std::size_t stride = layers_.front().block_stride;
  RONDO_CHECK_EQ(bytes.size(), stride);
  std::memcpy(base_ + static_cast<std::size_t>(block) * stride, bytes.data(), stride);
}

}  // namespace rondo::engine
