// JSON text of a StepCost and of a LengthPrior.
#include <exception>
#include <nlohmann/json.hpp>

#include "rollout/length_prior.h"
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

std::string length_prior_json(const LengthPrior& prior) {
  nlohmann::ordered_json json;
  json["log_median"] = prior.log_median;
  json["sigma"] = prior.sigma;
  json["rho"] = prior.rho;
  json["weight"] = prior.weight;
  return json.dump() + "\n";
}

Result<LengthPrior> parse_length_prior(std::string_view text) {
  LengthPrior prior;
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("log_median").get_to(prior.log_median);
    json.at("sigma").get_to(prior.sigma);
    json.at("rho").get_to(prior.rho);
    json.at("weight").get_to(prior.weight);
  } catch (const std::exception& error) {
    return fail(Code::kDataLoss, "no length prior: {}", error.what());
  }
  RONDO_TRY(check(prior));
  return prior;
}

}  // namespace rondo::rollout
