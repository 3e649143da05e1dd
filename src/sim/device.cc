#include "sim/device.h"

#include <span>
#include <vector>

#include "base/text_distance.h"

namespace rondo::sim {
namespace {

constexpr double kGb = 1e9;
constexpr double kTera = 1e12;

// A node's NVMe drives give about 14 GB/s, an eighth of it per device.
constexpr double kDiskShare = 1.75 * kGb;
constexpr double kPcie5 = 55 * kGb;     // x16, of 63 GB/s
constexpr double kRdma400G = 50 * kGb;  // 400 Gb/s per device
constexpr int kNode = 8;                // devices on one NVLink switch
constexpr int kPod = 384;               // dual-die chips on one unified bus

std::span<const Device> devices() {
  static const std::vector<Device> all = {
      // NVIDIA H100 data sheet (SXM5): 989 TFLOP/s bf16 dense, 80 GB HBM3, 3.35 TB/s, NVLink 900 GB/s both
      // ways.
      {"h100", 989 * kTera, 3.35 * kTera, 80 * kGb, 450 * kGb, kRdma400G, kPcie5, kDiskShare, kNode},
      // The same chip with NVLink of 400 GB/s both ways (DeepSeek-V3 technical report, arXiv 2412.19437,
      // §3.1:
      // 160 GB/s reached one way).
      {"h800", 989 * kTera, 3.35 * kTera, 80 * kGb, 200 * kGb, kRdma400G, kPcie5, kDiskShare, kNode},
      // NVIDIA H200 data sheet (SXM): 141 GB HBM3e, 4.8 TB/s.
      {"h200", 989 * kTera, 4.8 * kTera, 141 * kGb, 450 * kGb, kRdma400G, kPcie5, kDiskShare, kNode},
      // Huawei CloudMatrix384 paper (arXiv 2506.12708, §3): two dies of 376 TFLOP/s bf16 dense and 64 GB, 3.2
      // TB/s
      // together, 392 GB/s one way on the unified bus, 400 Gb/s RDMA.
      {"ascend_910c", 752 * kTera, 3.2 * kTera, 128 * kGb, 392 * kGb, kRdma400G, kPcie5, kDiskShare, kPod},
      // Times and room come from a profile and from engine.kv_tokens; the links are those of one machine's
      // memory.
      {std::string(kProfiledDevice), 0, 0, 0, 10 * kGb, 10 * kGb, 10 * kGb, 1 * kGb},
  };
  return all;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : devices()) names.push_back(device.name);
  return names;
}

}  // namespace

Result<Device> find_device(std::string_view name) {
  for (const Device& device : devices()) {
    if (device.name == name) return device;
  }
  return fail(Code::kInvalidArgument, "device.preset: unknown device '{}'; the nearest is '{}'", name,
              nearest_name(name, device_names()));
}

}  // namespace rondo::sim
