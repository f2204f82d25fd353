local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local end_kind = use 'ends/kind'
local quick_answer = use 'ends/quick-answer'
local quick_gate = use 'gate/quick-gate'
local touched = use 'gate/touched'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'

-- Ends jobs where only a rate and limits can hold the next ones: fetches without the gate as long as these conform. call:
-- as in lua/verbs/exchange. Returns the reply; or nil and the argument at which the rest begins.
local function end_conforming(call)
  local quick, at = quick_gate.open(call), ends.FIRST
  if not quick then return nil, at end
  delay_clock.knows(call.base, true, quick.now)
  while at <= #exchanged.argv do
    local wants = end_kind(exchanged.argv[at + 5]).wants and not exchanged.dry
    if wants and not quick_gate.admit(quick) then break end
    ends.exchange(at, quick.redis)
    at = at + ends.FIELDS
  end
  quick_gate.charge(quick)
  touched.wake()
  if at <= #exchanged.argv then
    call.now, call.fetched, call.meter, call.limits = quick.now, quick.jobs, quick.meter, quick_gate.limits(quick)
    return nil, at
  end
  quick_gate.save(quick, call)
  -- If no job was looked for, one other than expected was next, or none may start, the worker asks for jobs.
  local answer = exchanged.last and not quick.displaced and quick_answer.reply(exchanged.base, exchanged.results, exchanged.last, quick.time)
  return answer and answer[5] ~= 'halted' and answer or { 1, as_text.us(quick.now), exchanged.results }
end

return end_conforming
