#include "proto/shm/session_layout.h"

#include "proto/shm/lease.h"

namespace geminid::shm {

const char* Name(Residency residency) {
  switch (residency) {
    case Residency::kNone:
      return "none";
    case Residency::kAbsent:
      return "absent";
    case Residency::kFilling:
      return "filling";
    case Residency::kResident:
      return "resident";
    case Residency::kEvictPending:
      return "evict_pending";
    case Residency::kEvicting:
      return "evicting";
  }
  return "unknown";
}

const char* Name(ErrorReason reason) {
  switch (reason) {
    case ErrorReason::kNone:
      return "no reason given";
    case ErrorReason::kUnknownChunk:
      return "the session has no such chunk";
    case ErrorReason::kOutOfRange:
      return "the range is outside the chunk or the arena";
    case ErrorReason::kIllegalTransition:
      return "the chunk's state does not allow that transition";
    case ErrorReason::kLeased:
      return "the chunk is leased";
    case ErrorReason::kArenaFull:
      return "the device arena has no hole of that size";
    case ErrorReason::kNotResident:
      return "the chunk has no device copy";
    case ErrorReason::kAlreadyResident:
      return "the chunk has a device copy already";
    case ErrorReason::kQueueFull:
      return "too many transfers are queued";
    case ErrorReason::kUnknownTicket:
      return "no such ticket is in flight";
    case ErrorReason::kExtentBusy:
      return "the device extent asked for is in use";
    case ErrorReason::kMalformed:
      return "the request is malformed";
  }
  return "unknown reason";
}

const char* Name(StallCause cause) {
  switch (cause) {
    case StallCause::kCopy:
      return "copy";
    case StallCause::kGather:
      return "gather";
    case StallCause::kUpdate:
      return "update";
    case StallCause::kReduce:
      return "reduce";
    case StallCause::kSpace:
      return "space";
    case StallCause::kDaemon:
      return "daemon";
    case StallCause::kCollective:
      return "collective";
    case StallCause::kData:
      return "data";
  }
  return "unknown";
}

}  // namespace geminid::shm
