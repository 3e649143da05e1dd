// JSON text of a StepCost.
#include <exception>
#include <nlohmann/json.hpp>

#include "rollout/step_cost.h"

namespace rondo::rollout {

std::string step_cost_json(const StepCost& cost) {
  nlohmann::ordered_json json;
  json["batches"] = cost.axes().batches;
  json["gammas"] = cost.axes().gammas;
  json["contexts"] = cost.axes().contexts;
  json["seconds"] = cost.values();
  return json.dump();
}

Result<StepCost> parse_step_cost(std::string_view text) {
  StepCost::Axes axes;
  std::vector<double> seconds;
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("batches").get_to(axes.batches);
    json.at("gammas").get_to(axes.gammas);
    json.at("contexts").get_to(axes.contexts);
    json.at("seconds").get_to(seconds);
  } catch (const std::exception& error) {
    return fail(Code::kDataLoss, "step cost: {}; measure the costs again", error.what());
  }
  return StepCost::create(std::move(axes), std::move(seconds));
}

}  // namespace rondo::rollout
