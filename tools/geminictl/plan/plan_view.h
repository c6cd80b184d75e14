// What geminictl plan prints. Pure: values in, text out.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_VIEW_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/geminictl/output/style.h"
#include "training/forecast/forecast.h"

namespace geminid::ctl {

struct PlanAnswer {
  std::string subject;                   // the planned model or trace
  std::optional<forecast::Model> model;  // none: a trace
  forecast::Job job;
  bool host_is_given = true;  // else job.host_bytes stands for "as much as needed"
  forecast::Forecast forecast;
  std::optional<std::uint64_t> least_host_bytes;  // of a node
  std::vector<forecast::Change> changes;          // if it does not fit
  // Device memory of each rank with which geminid-train trains the model, by the trainer's own
  // function; only for models that it trains.
  std::optional<std::uint64_t> trainer_device_bytes = std::nullopt;
  std::vector<std::string> missing_rates;  // flags; if there are any, times are left out
  std::vector<std::string> notes;          // choices that the flags leave open

  bool rates_are_known() const { return missing_rates.empty(); }
};

std::string PlanText(const PlanAnswer& answer, const Style& style);

std::string ModelList(const Style& style);
std::string HardwareList(const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_VIEW_H_
