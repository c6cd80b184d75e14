// A daemon, a job that trains, and strangers: processes of their own, and what can be asked of
// them.
#ifndef GEMINID_TESTS_HOSTILE_SCENE_H_
#define GEMINID_TESTS_HOSTILE_SCENE_H_

#include <grpcpp/channel.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "geminid/v1/admin.pb.h"
#include "tests/base/temporary_folder.h"
#include "tests/hostile/attacks.h"

namespace geminid::hostile {

struct Job {
  std::string bits;  // its losses and weights; empty if it failed
  std::vector<double> step_seconds;
};

// Shared by all, as the memory of a descriptor.
struct Counts;

// The whole life of a stranger, which this program is when it is started with kStrangerFlag, the
// daemon's socket, the number of that descriptor, which of the strangers it is, and the attack that
// it is to carry out, or kAnyAttack.
inline constexpr char kStrangerFlag[] = "--stranger";
inline constexpr int kAnyAttack = -1;
[[noreturn]] void BeStranger(const std::string& socket, int counts, int stranger, int attack);

class Scene {
 public:
  Scene(std::string daemon, std::string trainer);
  ~Scene();

  // Where there are several processors the strangers get the second half of them, and the others
  // the first: what a stranger takes of a processor is no business of the daemon.
  std::string processors() const;

  bool StartDaemon();
  std::string Socket() const { return Path("s"); }
  Job Train();
  // Each carries out one of these attacks alone; of none: any.
  void ReleaseStrangers(const std::vector<size_t>& attacks = {});
  // Those that had ended by themselves count as dead: they were to go on until now.
  void RemoveStrangers();

  // What the daemon answers, and how long it takes; nothing if none came within a minute.
  struct Answer {
    v1::Status status;
    std::chrono::steady_clock::duration time{};
  };
  std::optional<Answer> Ask();
  // Tells the daemon to end. Nothing if it does not, or not with 0.
  std::optional<std::chrono::steady_clock::duration> EndDaemon();

  uint64_t spoils() const;
  uint64_t dead_strangers() const { return dead_strangers_; }
  // What the strangers are doing now: "listing loops and plans of garbage".
  std::string UnderWay() const;
  std::vector<size_t> AttacksUnderWay() const;
  std::vector<std::pair<std::string, uint64_t>> attacks() const;
  std::string LastWords() const;

 private:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  const std::string daemon_program_;
  const std::string trainer_program_;
  base::TemporaryFolder folder_;
  const base::UniqueFd counts_fd_;  // the strangers inherit it
  Counts* const counts_;
  pid_t daemon_ = -1;
  std::vector<pid_t> strangers_;
  uint64_t dead_strangers_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_SCENE_H_
