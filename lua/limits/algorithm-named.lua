local concurrency = use 'limits/concurrency'
local fixed_window = use 'limits/fixed-window'
local gcra = use 'limits/gcra'
local leaky_bucket = use 'limits/leaky-bucket'
local sliding_window_counter = use 'limits/sliding-window-counter'
local sliding_window_log = use 'limits/sliding-window-log'
local token_bucket = use 'limits/token-bucket'

-- The algorithms by name.
-- Each is a table of functions over a limit l, as src/limits/definition.ts writes it:
--   open(key, l, now, packed)    the state s of a key; s.now is the time (µs); packed as in limit_state.load
--   earliest(s, l, cost)         when that cost conforms: µs after s.now, not before it
--   charge(s, l, cost, offset)   charges it for that time, µs after s.now; only in memory if s.planned is set, a table
--                                for the algorithm's own use
--   adjust(s, l, cost)           charges it now unconditionally, or refunds it (cost < 0)
--   remove(s, l, cost)           undoes the last charge, if that differs from a refund
--   charged_until(s, since)      the sum of all charges up to a time; without it, s.start is the start of the window
--   take_back(s, l, cost, slot, budget)  undoes a charge for that time (µs) of what never started, the latest first; false
--                                if it cannot be undone without letting more pass than is allowed, or within the budget
--                                of the call: budget.entries of logs may still be read. Not for places: they follow
--                                their holders
--   begin(s, l, start, used, opening)  for a window: sets its start, what was charged in it, and what of that for its start
--   save(s, l)                   stores what was charged
--   view(s, l)                   units left now, and when all are available again (µs since 1970)
-- What conforms once also conforms later, as long as nothing is charged: so the earliest time at which several limits
-- are met together is the latest of theirs.
local function algorithm_named(name)
  if name == 'concurrency' then return concurrency end
  if name == 'fixed-window' then return fixed_window end
  if name == 'gcra' then return gcra end
  if name == 'leaky-bucket' then return leaky_bucket end
  if name == 'sliding-window-counter' then return sliding_window_counter end
  if name == 'sliding-window-log' then return sliding_window_log end
  if name == 'token-bucket' then return token_bucket end
end

return algorithm_named
