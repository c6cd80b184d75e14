#include "tools/sim/timeline.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::sim {
namespace {

// To the nanosecond: "12.345".
std::string Microseconds(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

// Names of tracks and spans are ours: letters, digits, spaces and dashes, nothing to escape.
class Events {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",\n", "{", parts..., "}");
  }
  std::string Json() const {
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", text_, "\n]}\n");
  }

 private:
  std::string text_;
};

void NameTracks(size_t ranks, Events* events) {
  for (size_t rank = 0; rank < ranks; ++rank) {
    events->Add("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", rank,
                ",\"args\":{\"name\":\"rank ", rank, "\"}");
    for (int track = 0; track < kTracks; ++track) {
      events->Add("\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", rank, ",\"tid\":", track,
                  ",\"args\":{\"name\":\"", Name(static_cast<Track>(track)), "\"}");
    }
  }
}

}  // namespace

std::string TimelineJson(const SimulationResult& run) {
  Events events;
  NameTracks(run.ranks.size(), &events);
  for (const Span& span : run.spans) {
    events.Add("\"ph\":\"X\",\"name\":\"", span.name, "\",\"pid\":", span.rank,
               ",\"tid\":", static_cast<int>(span.track),
               ",\"ts\":", Microseconds(span.begin.nanoseconds()),
               ",\"dur\":", Microseconds((span.end - span.begin).nanoseconds()));
  }
  for (const MemorySample& sample : run.samples) {
    std::string bytes;
    for (size_t owner = 0; owner < sample.bytes.size(); ++owner) {
      absl::StrAppend(&bytes, owner == 0 ? "" : ",", "\"", Name(static_cast<Owner>(owner)),
                      "\":", sample.bytes[owner]);
    }
    events.Add("\"ph\":\"C\",\"name\":\"device bytes\",\"pid\":", sample.rank,
               ",\"ts\":", Microseconds(sample.at.nanoseconds()), ",\"args\":{", bytes, "}");
  }
  return events.Json();
}

}  // namespace geminid::sim
