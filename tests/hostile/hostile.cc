// hostile DAEMON TRAINER SECONDS [--json]: a daemon, a job that trains, and two strangers who try
// everything they can think of, for so long, with calm phases in between. Prints what it saw; fails
// when a target is missed.
//
// hostile DAEMON TRAINER SECONDS --attack NAME: how long small tickets of a client take to come,
// and a job to train, alone and beside two strangers who do only that.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <mutex>
#include <thread>

#include "daemon/core/records/manifest.h"
#include "daemon/memory/session_segments.h"
#include "tests/hostile/kernel_books.h"
#include "tests/hostile/probe.h"
#include "tests/hostile/report.h"
#include "tests/hostile/scene.h"

namespace geminid::hostile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenQuestions = std::chrono::milliseconds(50);
// Sessions come and go between two looks, a hundred a second: only what stays is held.
constexpr size_t kReadingsThatCount = 8;
// From here on other programs are expected to leave the machine alone.
constexpr double kLongSeconds = 60;
constexpr int kTriesInAShortRun = 5;
// What the kernel counts in batches by processor, and segments of sessions that are just coming.
constexpr uint64_t kInaccuracyBytes = uint64_t{8} << 20;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// All that may be shared memory by what the daemon says of itself.
uint64_t ShownBytes(const v1::Status& status) {
  uint64_t bytes = status.sessions() * memory::SessionSegments::Bytes() +
                   core::Manifest::BytesFor(4 * shm::kMaxChunks) + kInaccuracyBytes;
  for (const v1::TierLedger& tier : status.ledger().tiers()) {
    bytes += tier.in_use_bytes() + tier.reserved_bytes();
  }
  return bytes;
}

// Asks the daemon again and again, on a thread of its own.
class Watcher {
 public:
  Watcher(Scene* scene, const KernelBooks* books, Report* report)
      : scene_(scene), books_(books), report_(report), thread_([this] { Run(); }) {}
  ~Watcher() { Stop(); }

  void Enter(Phase* phase) {
    const std::lock_guard<std::mutex> lock(mutex_);
    phase_ = phase;
  }
  void Stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    uint64_t shown_before = 0;
    while (!stop_.load()) {
      // Between two looks at the ledger, so that what comes or goes meanwhile is in one of them.
      const std::optional<uint64_t> held = books_ == nullptr ? std::nullopt : books_->SharedBytes();
      const std::string during = scene_->UnderWay();
      const std::vector<size_t> attacks = scene_->AttacksUnderWay();
      const std::optional<Scene::Answer> answer = scene_->Ask();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (phase_ != nullptr) Note(answer, {during, attacks}, held, &shown_before);
      }
      std::this_thread::sleep_for(kBetweenQuestions);
    }
  }

  struct UnderWay {
    const std::string& words;
    const std::vector<size_t>& attacks;
  };

  void Note(const std::optional<Scene::Answer>& answer, const UnderWay& during,
            const std::optional<uint64_t>& held, uint64_t* shown_before) {
    if (!answer.has_value()) {
      ++phase_->unanswered;
      return;
    }
    const double milliseconds = Milliseconds(answer->time);
    if (milliseconds > Slowest(*phase_)) {
      phase_->during_slowest = during.words;
      phase_->attacks_during_slowest = during.attacks;
    }
    phase_->answer_milliseconds.push_back(milliseconds);
    report_->books_add_up = report_->books_add_up && answer->status.ledger().adds_up();
    const uint64_t shown = ShownBytes(answer->status);
    if (held.has_value() && *shown_before > 0) {
      const uint64_t most = std::max(shown, *shown_before);
      ++report_->book_readings;
      excess_.push_back(*held > most ? *held - most : 0);
      if (excess_.size() > kReadingsThatCount) excess_.pop_front();
      if (excess_.size() == kReadingsThatCount) {
        report_->unaccounted_bytes =
            std::max(report_->unaccounted_bytes, *std::min_element(excess_.begin(), excess_.end()));
      }
    }
    *shown_before = shown;
  }

  Scene* const scene_;
  const KernelBooks* const books_;
  Report* const report_;
  std::mutex mutex_;
  Phase* phase_ = nullptr;       // guarded by mutex_
  std::deque<uint64_t> excess_;  // of the last readings
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

// Jobs until `end`, at least one.
void TrainUntil(Clock::time_point end, const std::string& bits, Scene* scene, Phase* phase) {
  do {
    const Job job = scene->Train();
    ++phase->jobs;
    phase->jobs_with_other_bits += job.bits == bits ? 0 : 1;
    phase->step_seconds.insert(phase->step_seconds.end(), job.step_seconds.begin(),
                               job.step_seconds.end());
  } while (Clock::now() < end);
}

// What the strangers did during the slowest answer, once more.
void TryAgain(Scene* scene, Watcher* watcher, Phase* hostile) {
  constexpr auto kLength = std::chrono::seconds(3);
  scene->RemoveStrangers();
  scene->ReleaseStrangers(hostile->attacks_during_slowest);
  Phase again;
  watcher->Enter(&again);
  std::this_thread::sleep_for(kLength);
  watcher->Enter(nullptr);
  hostile->unanswered += again.unanswered;
  if (!again.answer_milliseconds.empty()) hostile->again_milliseconds.push_back(Slowest(again));
}

// How long the daemon takes to end under attack; nothing if it does not, or not well.
std::optional<double> EndUnderAttack(Scene* scene) {
  scene->ReleaseStrangers();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto ended = scene->EndDaemon();
  return ended.has_value() ? std::optional(Milliseconds(*ended)) : std::nullopt;
}

// With the strangers gone and their sessions ended nothing of theirs may be left: then the segments
// of sessions, of which there are many before, hide nothing either.
void CheckAfterwards(Scene* scene, const KernelBooks* books, Report* report) {
  constexpr auto kPatience = std::chrono::minutes(1);
  const auto end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    const std::optional<Scene::Answer> answer = scene->Ask();
    const std::optional<uint64_t> held = books == nullptr ? std::nullopt : books->SharedBytes();
    if (answer.has_value() && held.has_value() && answer->status.sessions() == 0) {
      const uint64_t shown = ShownBytes(answer->status);
      report->left_bytes = *held > shown ? *held - shown : 0;
      if (report->left_bytes == 0) return;
    }
    std::this_thread::sleep_for(kBetweenQuestions);
  }
}

int Complain(const Scene& scene, const std::string& what) {
  std::cerr << "hostile: " << what << "\n" << scene.LastWords();
  return 1;
}

int Run(const std::string& daemon, const std::string& trainer, double seconds, bool as_json) {
  const std::unique_ptr<KernelBooks> books = KernelBooks::Open();
  const bool is_long = seconds >= kLongSeconds;
  Report report;
  report.seconds = seconds;
  Scene scene(daemon, trainer);
  report.processors = scene.processors();
  if (!scene.StartDaemon()) return Complain(scene, "the daemon does not start");
  const Job first = scene.Train();
  if (first.bits.empty()) return Complain(scene, "the job fails without any stranger");
  const auto begin = Clock::now();
  const auto length = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds / 2, 20.0)));
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    Watcher watcher(&scene, books.get(), &report);
    while (Clock::now() < end) {
      std::cerr << "hostile: " << std::chrono::duration<double>(Clock::now() - begin).count()
                << " s of " << seconds << "\n";
      scene.RemoveStrangers();
      watcher.Enter(&report.calm);
      TrainUntil(Clock::now() + length / 4, first.bits, &scene, &report.calm);
      scene.ReleaseStrangers();
      watcher.Enter(&report.hostile);
      TrainUntil(Clock::now() + length, first.bits, &scene, &report.hostile);
    }
    watcher.Enter(nullptr);
    for (int i = 0; !is_long && i < kTriesInAShortRun && IsTooSlow(report.hostile, is_long); ++i) {
      TryAgain(&scene, &watcher, &report.hostile);
    }
  }
  scene.RemoveStrangers();
  CheckAfterwards(&scene, books.get(), &report);
  report.dead_strangers = scene.dead_strangers();
  report.end_milliseconds = EndUnderAttack(&scene);
  for (int i = 0; !is_long && i < kTriesInAShortRun && report.end_milliseconds.has_value() &&
                  EndsTooLate(*report.end_milliseconds);
       ++i) {
    scene.RemoveStrangers();
    if (!scene.StartDaemon()) return Complain(scene, "the daemon does not start again");
    report.end_milliseconds = EndUnderAttack(&scene);
  }
  report.spoils = scene.spoils();
  report.attacks = scene.attacks();
  scene.RemoveStrangers();
  const std::vector<Finding> findings = Judge(report, is_long);
  std::cout << (as_json ? ToJson(report, findings) : ToTable(report, findings));
  for (const Finding& finding : findings) {
    if (!finding.met) return Complain(scene, finding.what + ": " + finding.measured);
  }
  return 0;
}

// A line about tickets and jobs of so many seconds.
void MeasureFor(double seconds, const char* when, Scene* scene) {
  const auto time =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<double> microseconds;
  std::thread asking([&] {
    if (const auto probe = Probe::Attach(scene->Socket())) microseconds = probe->Ask(time);
  });
  const auto began = Clock::now();
  const Job job = scene->Train();
  const double trained = std::chrono::duration<double>(Clock::now() - began).count();
  asking.join();
  std::cout << when << ": " << microseconds.size() << " tickets, p50 "
            << Percentile(microseconds, 50) << " us, p99 " << Percentile(microseconds, 99)
            << " us, p99.9 " << Percentile(microseconds, 99.9) << " us, slowest "
            << Percentile(microseconds, 100) << " us; a job "
            << (job.bits.empty() ? "failed after " : "trained for ") << trained << " s\n";
}

int MeasureAttack(const std::string& daemon, const std::string& trainer, double seconds,
                  const std::string& name) {
  size_t which = 0;
  while (which < Attacks().size() && Attacks()[which].name != name) ++which;
  if (which == Attacks().size()) {
    std::cerr << "hostile: there is no attack \"" << name << "\"; there are:\n";
    for (const Attack& attack : Attacks()) std::cerr << "  " << attack.name << "\n";
    return 64;
  }
  Scene scene(daemon, trainer);
  if (!scene.StartDaemon()) return Complain(scene, "the daemon does not start");
  MeasureFor(seconds, "calm", &scene);
  scene.ReleaseStrangers({which});
  std::this_thread::sleep_for(std::chrono::seconds(2));  // they have begun
  MeasureFor(seconds, "beside it", &scene);
  scene.RemoveStrangers();
  return 0;
}

}  // namespace
}  // namespace geminid::hostile

int main(int argc, char** argv) {
  using namespace geminid::hostile;  // NOLINT: one function
  if (argc == 6 && std::strcmp(argv[1], kStrangerFlag) == 0) {
    BeStranger(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
  }
  if (argc == 6 && std::strcmp(argv[4], "--attack") == 0) {
    return MeasureAttack(argv[1], argv[2], std::atof(argv[3]), argv[5]);
  }
  const bool as_json = argc == 5 && std::strcmp(argv[4], "--json") == 0;
  if (argc != 4 && !as_json) {
    std::cerr << "usage: " << argv[0] << " DAEMON TRAINER SECONDS [--json | --attack NAME]\n";
    return 64;
  }
  return Run(argv[1], argv[2], std::atof(argv[3]), as_json);
}
