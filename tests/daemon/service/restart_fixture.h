// A daemon that stops as if it had died, and the next one, in one process. The store between them
// is in the same process.
#ifndef GEMINID_TESTS_DAEMON_SERVICE_RESTART_FIXTURE_H_
#define GEMINID_TESTS_DAEMON_SERVICE_RESTART_FIXTURE_H_

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "gtest/gtest.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::service {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// A store without a process. It behaves like systemd's, which helps less than geminid-holder: it
// may have several descriptors of one name, and does not take a second descriptor of the same file.
class Kept {
 public:
  // The store that a daemon sees. It treats an orderly stop like a death.
  class Store final : public holder::DescriptorStore {
   public:
    explicit Store(Kept* kept) : kept_(kept) {}
    absl::Status Put(const std::string& name, int fd) override {
      const std::lock_guard lock(kept_->mutex_);
      if (kept_->Reaches() && !kept_->HasFile(fd)) {
        kept_->fds_.emplace(name, ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      }
      return absl::OkStatus();
    }
    absl::Status Remove(const std::string& name) override {
      const std::lock_guard lock(kept_->mutex_);
      if (kept_->Reaches()) kept_->fds_.erase(name);
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
      const std::lock_guard lock(kept_->mutex_);
      std::vector<holder::StoredDescriptor> listed;
      for (const auto& [name, fd] : kept_->fds_) {
        listed.push_back({name, base::UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0))});
      }
      return listed;
    }
    void Finish() override {}
    bool OutlivesStop() const override { return true; }

   private:
    Kept* const kept_;
  };

  std::vector<std::string> Names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, fd] : fds_) names.push_back(name);
    return names;
  }
  bool Has(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return fds_.contains(name);
  }
  // The names that contain `part`.
  std::vector<std::string> NamesWith(const std::string& part) const {
    std::vector<std::string> names = Names();
    std::erase_if(names,
                  [&](const std::string& name) { return name.find(part) == std::string::npos; });
    return names;
  }
  const base::UniqueFd& Of(const std::string& name) const { return fds_.find(name)->second; }
  void Put(const std::string& name, base::UniqueFd fd) { fds_.emplace(name, std::move(fd)); }

  // Drops all changes after that many more: for the next daemon, the daemon died there.
  void DieAfter(int changes) {
    const std::lock_guard lock(mutex_);
    changes_left_ = changes;
  }
  void LiveAgain() { DieAfter(-1); }

 private:
  bool Reaches() {
    if (changes_left_ == 0) return false;
    if (changes_left_ > 0) --changes_left_;
    return true;
  }
  bool HasFile(int fd) const {
    struct stat file = {};
    if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return false;  // it has no inode
    return std::any_of(fds_.begin(), fds_.end(), [&](const auto& kept) {
      struct stat other = {};
      return ::fstat(kept.second.get(), &other) == 0 && other.st_ino == file.st_ino &&
             other.st_dev == file.st_dev;
    });
  }

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::multimap<std::string, base::UniqueFd> fds_;
  int changes_left_ = -1;  // the changes that still take effect; 0: none; negative: all
};

// Tests with sessions of the client library, with arenas of 1 MiB.
class RestartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.open_store = [this] { return std::make_unique<Kept::Store>(&kept_); };
    ASSERT_TRUE(env_.Start(options_).ok());
  }
  std::unique_ptr<Session> Connect(const std::string& job = "job", bool keep = false) {
    ConnectOptions options;
    options.socket = env_.socket();
    options.job = job;
    options.device_memory_bytes = kMiB;
    options.keep_on_death = keep;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  static ChunkHandle Allocate(Session* session, const std::string& name = "a") {
    const absl::StatusOr<std::vector<ChunkHandle>> chunks =
        session->Allocate({{name, ChunkKind::kGeneric, 64 * 1024, true}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    return chunks.ok() ? chunks->front() : ChunkHandle{};
  }
  void Restart() {
    env_.Stop();
    const absl::Status started = env_.Start(options_);
    ASSERT_TRUE(started.ok()) << started;
  }
  core::AccountTotals Totals(core::Account account) {
    return env_.daemon().hub().Inspect(
        [&](const core::Engine& engine, const auto&) { return engine.ledger().Totals(account); });
  }
  absl::Status Check() { return env_.daemon().hub().Check(); }
  ino_t InodeOf(const std::string& name) const {
    struct stat file = {};
    return ::fstat(kept_.Of(name).get(), &file) == 0 ? file.st_ino : 0;
  }
  // Changes one 32-bit word of a stored file, and returns the old word.
  uint32_t Exchange(const std::string& name, size_t offset, uint32_t value) {
    const base::Mapping mapping = *base::Mapping::Map(kept_.Of(name), 4096);
    uint32_t old = 0;
    std::memcpy(&old, mapping.data() + offset, sizeof(old));
    std::memcpy(mapping.data() + offset, &value, sizeof(value));
    return old;
  }

  Kept kept_;
  testing::DaemonEnvOptions options_;
  testing::DaemonEnv env_;
};

}  // namespace geminid::service

#endif  // GEMINID_TESTS_DAEMON_SERVICE_RESTART_FIXTURE_H_
