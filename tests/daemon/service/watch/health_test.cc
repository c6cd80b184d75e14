#include "daemon/service/watch/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::service {
namespace {

using ::testing::HasSubstr;

HealthReading Good() {
  HealthReading reading;
  reading.serving = true;
  return reading;
}

TEST(Health, GoodDaemon_IsAliveReadyAndHealthy) {
  for (const auto& probe : {Livez, Readyz, Healthz}) {
    EXPECT_EQ(probe(Good()).code, 200);
    EXPECT_EQ(probe(Good()).body, "ok\n");
  }
}

TEST(Health, TurnOfTheLoop_IsTooLongFromTheBoundOn) {
  HealthReading reading = Good();
  reading.turn = kLongestTurn - core::Duration::Nanoseconds(1);
  EXPECT_EQ(Livez(reading).code, 200);
  reading.turn = kLongestTurn;
  for (const auto& probe : {Livez, Readyz, Healthz}) EXPECT_EQ(probe(reading).code, 503);
}

TEST(Health, StartingAndStoppingDaemons_LiveButAreNotReady) {
  HealthReading starting;
  HealthReading stopping = Good();
  stopping.stopping = true;
  for (const HealthReading& reading : {starting, stopping}) {
    EXPECT_EQ(Livez(reading).code, 200);
    EXPECT_EQ(Healthz(reading).code, 200);
    EXPECT_EQ(Readyz(reading).code, 503);
  }
  EXPECT_EQ(Readyz(starting).body, "it is starting\n");
}

TEST(Health, Contradictions_AreToldAndNoReasonToRestart) {
  HealthReading reading = Good();
  reading.contradictions = {"host: 3 + 4 is not 8", "device 0: lines"};
  EXPECT_EQ(Livez(reading).code, 200);
  EXPECT_EQ(Readyz(reading).code, 503);
  EXPECT_EQ(Healthz(reading).code, 503);
  EXPECT_THAT(Healthz(reading).body, HasSubstr("host: 3 + 4 is not 8"));
  EXPECT_THAT(Healthz(reading).body, HasSubstr("device 0: lines"));
}

TEST(Health, SocketThatClientsDoNotFind_IsToldAndNoReasonToRestartByItself) {
  HealthReading reading = Good();
  reading.lost_sockets = {"its socket /run/g.sock was removed"};
  EXPECT_EQ(Livez(reading).code, 200);
  for (const auto& probe : {Readyz, Healthz}) {
    EXPECT_EQ(probe(reading).code, 503);
    EXPECT_THAT(probe(reading).body, HasSubstr("/run/g.sock was removed"));
  }
}

TEST(Health, SessionsThatWouldEndWithTheDaemon_AreToldAndStopNoNewJobs) {
  HealthReading reading = Good();
  reading.sessions_survive = false;
  EXPECT_EQ(Livez(reading).code, 200);
  EXPECT_EQ(Readyz(reading).code, 200);
  EXPECT_EQ(Healthz(reading).code, 503);
  EXPECT_THAT(Healthz(reading).body, HasSubstr("geminid-holder does not run"));
}

TEST(Health, GpuWithoutAnAgent_IsToldAndNotReadyOnlyWhereNoDeviceServes) {
  HealthReading reading = Good();
  reading.gpus_without_memory = {"device 1: its agent is starting"};
  EXPECT_EQ(Livez(reading).code, 200);
  EXPECT_EQ(Readyz(reading).code, 200);
  EXPECT_EQ(Healthz(reading).code, 503);
  reading.some_device_serves = false;
  EXPECT_EQ(Livez(reading).code, 200);
  EXPECT_EQ(Readyz(reading).code, 503);
  EXPECT_THAT(Readyz(reading).body, HasSubstr("device 1: its agent is starting"));
}

}  // namespace
}  // namespace geminid::service
