#include "daemon/service/sessions/session_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace geminid::service {
namespace {

struct alignas(64) Block {
  std::byte bytes[64];
};

class SessionTableTest : public ::testing::Test {
 protected:
  static core::EngineOptions Node() {
    core::EngineOptions engine;
    engine.host_capacity_bytes = 1 << 20;
    engine.devices = {core::HostDevice(shm::DeviceIndex{0}, 1 << 20)};
    return engine;
  }
  core::Manifest NewManifest() {
    return *core::Manifest::Create({blocks_.front().bytes, blocks_.size() * sizeof(Block)}, 5);
  }

  std::vector<Block> blocks_ = std::vector<Block>(64);
  SessionTable table_{Node(), ManifestFile{}, NewManifest()};
};

TEST_F(SessionTableTest, Epoch_IsTheManifests) { EXPECT_EQ(table_.epoch(), 5u); }

TEST_F(SessionTableTest, SessionThatIsNotThere_IsNull) {
  EXPECT_EQ(table_.Lock().Find(shm::SessionId{1}), nullptr);
}

// Other threads may take the mutex between two slices, and not within one.
TEST_F(SessionTableTest, Slices_AreEachUnderTheMutexAndNotBetween) {
  int slices = 0;
  int between = 0;
  std::thread loop;
  table_.InSlices([&](const SessionTable::Locked&) {
    ++slices;
    if (slices == 1) {
      loop = std::thread([&] {
        const SessionTable::Locked locked = table_.LockForLoop();
        between = slices;
      });
    }
    // The last slice comes after the other thread has run.
    return between > 0;
  });
  loop.join();
  EXPECT_GT(between, 0);
  EXPECT_EQ(slices, between + 1);
}

}  // namespace
}  // namespace geminid::service
