#include "tools/sim/observer.h"

#include <numeric>
#include <utility>

namespace geminid::sim {

const char* Name(Track track) {
  switch (track) {
    case Track::kCompute:
      return "compute";
    case Track::kWait:
      return "wait";
    case Track::kUp:
      return "up";
    case Track::kDown:
      return "down";
    case Track::kCollectives:
      return "collectives";
    case Track::kOptimizer:
      return "optimizer";
    case Track::kDisk:
      return "disk";
  }
  return "unknown";
}

const char* Name(WaitCause cause) {
  switch (cause) {
    case WaitCause::kCopy:
      return "copy";
    case WaitCause::kGather:
      return "gather";
    case WaitCause::kUpdate:
      return "update";
    case WaitCause::kReduce:
      return "reduce";
    case WaitCause::kSpace:
      return "space";
    case WaitCause::kBarrier:
      return "barrier";
    case WaitCause::kOutage:
      return "outage";
  }
  return "unknown";
}

const char* Name(Owner owner) {
  switch (owner) {
    case Owner::kLoading:
      return "loading";
    case Owner::kWeights:
      return "weights";
    case Owner::kLeaving:
      return "leaving";
    case Owner::kActivations:
      return "activations";
  }
  return "unknown";
}

uint64_t Total(const DeviceBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

Observer::Observer(EventQueue* events, int ranks, size_t moments, bool keeps_events)
    : events_(events), keeps_events_(keeps_events), ranks_(static_cast<size_t>(ranks)) {
  for (Rank& rank : ranks_) rank.moments.resize(moments);
}

void Observer::Add(Span span) {
  At(span.rank).use.busy_seconds[static_cast<size_t>(span.track)] +=
      (span.end - span.begin).seconds();
  if (keeps_events_) spans_.push_back(std::move(span));
}

void Observer::AddWait(int rank, WaitCause cause, core::Time since) {
  if (events_->now() == since) return;
  At(rank).use.wait_seconds[static_cast<size_t>(cause)] += (events_->now() - since).seconds();
  Add({rank, Track::kWait, Name(cause), since, events_->now()});
}

void Observer::AddBytes(int rank, Track track, uint64_t bytes) {
  (track == Track::kUp ? At(rank).use.up_bytes : At(rank).use.down_bytes) += bytes;
}

void Observer::AddDiskBytes(int rank, uint64_t read_bytes, uint64_t written_bytes) {
  At(rank).use.disk_read_bytes += read_bytes;
  At(rank).use.disk_write_bytes += written_bytes;
}

void Observer::ChangeMemory(int rank, Owner owner, int64_t by_bytes) {
  At(rank).now[static_cast<size_t>(owner)] += static_cast<uint64_t>(by_bytes);
  NoteMemory(rank);
}

void Observer::SetMemory(int rank, Owner owner, uint64_t bytes) {
  At(rank).now[static_cast<size_t>(owner)] = bytes;
  NoteMemory(rank);
}

void Observer::SetMoment(int rank, size_t moment) {
  At(rank).moment = moment;
  At(rank).moments[moment] = At(rank).now;
  NoteMemory(rank);
}

void Observer::NoteMemory(int rank) {
  Rank& at = At(rank);
  if (Total(at.now) > Total(at.use.peak)) at.use.peak = at.now;
  DeviceBytes& moment = at.moments[at.moment];
  if (Total(at.now) > Total(moment)) moment = at.now;
  if (keeps_events_) samples_.push_back({rank, events_->now(), at.now});
}

void Observer::Reset() {
  for (Rank& rank : ranks_) {
    rank.use = RankUse{};
    rank.use.peak = rank.now;
  }
}

}  // namespace geminid::sim
