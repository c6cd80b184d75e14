#include "proto/shm/types.h"

namespace geminid::shm {

const char* Name(Tier tier) {
  switch (tier) {
    case Tier::kNone:
      return "none";
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

const char* Name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNone:
      return "none";
    case DeviceKind::kHost:
      return "host";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "unknown";
}

const char* Name(ChunkKind kind) {
  switch (kind) {
    case ChunkKind::kNone:
      return "none";
    case ChunkKind::kWeight:
      return "weight";
    case ChunkKind::kRemainder:
      return "remainder";
    case ChunkKind::kExpAvg:
      return "exp_avg";
    case ChunkKind::kExpAvgSq:
      return "exp_avg_sq";
    case ChunkKind::kGradient:
      return "gradient";
    case ChunkKind::kGatheredWeight:
      return "gathered_weight";
    case ChunkKind::kSpare:
      return "spare";
    case ChunkKind::kGeneric:
      return "generic";
    case ChunkKind::kShared:
      return "shared";
    case ChunkKind::kOnDisk:
      return "on_disk";
  }
  return "unknown";
}

const char* Name(Direction direction) {
  switch (direction) {
    case Direction::kNone:
      return "none";
    case Direction::kHostToDevice:
      return "host_to_device";
    case Direction::kDeviceToHost:
      return "device_to_host";
  }
  return "unknown";
}

const char* Name(TransferCause cause) {
  switch (cause) {
    case TransferCause::kNone:
      return "none";
    case TransferCause::kDemand:
      return "demand";
    case TransferCause::kPrefetch:
      return "prefetch";
    case TransferCause::kWriteBack:
      return "write_back";
    case TransferCause::kUpdate:
      return "update";
  }
  return "unknown";
}

}  // namespace geminid::shm
