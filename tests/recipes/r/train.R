# Logistic regression by gradient descent, in plain R.
args <- commandArgs(trailingOnly = TRUE)
options <- list(rate = "0.1", ridge = "0", rounds = "9", seed = "1", state = "state.rds")
for (arg in args) {
  parts <- strsplit(sub("^--", "", arg), "=")[[1]]
  options[[parts[1]]] <- parts[2]
}
set.seed(as.integer(options$seed))
x <- cbind(1, matrix(rnorm(200), 100))
y <- as.numeric(x %*% c(0.5, 1, -2) + rnorm(100) > 0)
state <- list(round = 0, weights = rep(0, 3))
if (file.exists(options$state)) state <- readRDS(options$state)
while (state$round < as.integer(options$rounds)) {
  chance <- 1 / (1 + exp(-x %*% state$weights))
  Sys.sleep(0.3) # a real round takes longer
  gradient <- t(x) %*% (chance - y) / 100 + as.numeric(options$ridge) * state$weights
  state$weights <- state$weights - as.numeric(options$rate) * gradient
  state$round <- state$round + 1
  chance <- 1 / (1 + exp(-x %*% state$weights))
  deviance <- -mean(y * log(chance) + (1 - y) * log(1 - chance))
  saveRDS(state, options$state)
  cat(sprintf("%d\tdeviance: %.9f\taccuracy: %.2f\n", state$round, deviance, mean((chance > 0.5) == y)))
  flush(stdout())
}
