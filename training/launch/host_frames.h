// The protocol between the launcher and its agents on other hosts, over the agent's standard input
// and output.
//
// The agent begins with one line. A login shell may have written other lines before it:
//   geminid-host 1 VERSION BUILD
// The line shows whether both ends are the same program. Everything after it is frames.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_FRAMES_H_
#define GEMINID_TRAINING_LAUNCH_HOST_FRAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/handover_memory.h"

namespace geminid::trainer {

inline constexpr char kHostGreeting[] = "geminid-host 1";

// A program: its version, and a hash that distinguishes builds of one version.
struct ProgramVersion {
  std::string version;
  std::string build;
  friend bool operator==(const ProgramVersion&, const ProgramVersion&) = default;
};

// The version of this process; the build is the SHA-256 of its file.
absl::StatusOr<ProgramVersion> OwnVersion();

std::string GreetingOf(const ProgramVersion& version);
// Nothing if the line is not a greeting.
std::optional<ProgramVersion> ParseGreeting(const std::string& line);

enum class HostFrameType : uint8_t {
  // To the agent. A list is its length and its items.
  kPrepare = 1,  // ranks of the run, of them here, milliseconds of silence, folder, list of
                 // NAME=value, list of a MoveRequest's texts if the run is to come, arguments ...
  kStart,        // rank, ranks of the run, list of NAME=value, arguments ...; without fields: those
                 // before now start
  kSignal,       // signal, to all ranks
  kFetch,        // how many pieces more of the state may come, "anew" from its begin
  kReceive,      // a Handover's texts: its pieces come
  kAnswer,       // request, status code, message: to what the ranks want
  kTell,         // request, state, message: for the host's daemon
  kAdopt,        // a Handover's texts: the next ranks begin with it; without fields: with none
  // From the agent.
  kReady,     // after kPrepare
  kRefused,   // instead of kReady: status code, message. After kStart: a rank could not be started
  kStarted,   // rank, pid
  kWords,     // rank, text from its stderr
  kEnded,     // rank, status as of waitpid, "done" if the rank said so
  kHandover,  // a Handover's texts: its state is complete here; no fields: there is no state
  kWanted,    // a MoveRequest's texts: the ranks' request; no fields: there is no request
  kJobEnded,  // the host's daemon says that a person has ended the job
  // Both ways.
  kPiece,  // of state
  kBeat,   // the sender is alive
};

struct HostFrame {
  HostFrameType type = HostFrameType::kBeat;
  std::vector<std::string> fields{};
  friend bool operator==(const HostFrame&, const HostFrame&) = default;
};

// Little-endian: the type (1 byte), the length of the rest (4), then the length (4) and the bytes
// of each field.
std::string Encode(const HostFrame& frame);

// Splits a stream into frames.
class HostFrameReader {
 public:
  void Append(const std::string& bytes) { buffer_ += bytes; }
  // Nothing if the next frame is not complete. INVALID_ARGUMENT if the bytes are not frames.
  absl::StatusOr<std::optional<HostFrame>> Next();

 private:
  std::string buffer_;
};

// Takes a frame's fields one after the other. INVALID_ARGUMENT if the field is missing.
class FieldReader {
 public:
  explicit FieldReader(const HostFrame& frame) : fields_(frame.fields) {}
  explicit FieldReader(const std::vector<std::string>& fields) : fields_(fields) {}
  absl::StatusOr<std::string> Text();
  absl::StatusOr<int> Number();
  absl::StatusOr<uint64_t> Count();
  absl::StatusOr<std::vector<std::string>> List();
  std::vector<std::string> Rest();

 private:
  const std::vector<std::string>& fields_;
  size_t next_ = 0;
};

void AppendList(const std::vector<std::string>& list, HostFrame* frame);

// Converts to and from fields; nothing becomes no fields. The clocks of hosts differ, so the texts
// say how long before `now` a handover began.
std::vector<std::string> TextsOf(const std::optional<Handover>& handover, absl::Time now);
std::vector<std::string> TextsOf(const std::optional<MoveRequest>& move);
absl::StatusOr<std::optional<Handover>> HandoverFrom(const std::vector<std::string>& texts,
                                                     absl::Time now);
absl::StatusOr<std::optional<MoveRequest>> MoveFrom(const std::vector<std::string>& texts);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_FRAMES_H_
