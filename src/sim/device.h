// Device: what an accelerator can do, by its data sheet.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::sim {

/// Peak figures of one device; the share of them that is reached is EngineModel's matter.
struct Device {
  std::string name;
  double flops = 0.0;             // dense 16-bit, per second
  double memory_bandwidth = 0.0;  // bytes per second
  double memory = 0.0;            // bytes
  double peer_bandwidth = 0.0;    // within its fast domain (NVLink, HCCS), bytes per second one way
  double rdma_bandwidth = 0.0;    // beyond it, and to other instances
  double host_bandwidth = 0.0;    // to the host's memory, over PCIe
  double disk_bandwidth = 0.0;    // to the node's disks, this device's share
  int peers = 1;                  // devices of its fast domain, itself included
};

/// The device of this name. kInvalidArgument with the nearest name if there is none. Any thread.
Result<Device> find_device(std::string_view name);
/// The name of a device whose times come from a measured profile.
inline constexpr std::string_view kProfiledDevice = "cpu";

}  // namespace rondo::sim
