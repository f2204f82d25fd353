-- What an admission needs of a new job besides its cost, as text (src/admission/job-terms.ts): '' if nothing, else
-- 'place,priority,delay,deadline'. The place is l for a lifo job, w for one that waits for its children, and a before it
-- if another shard is asked for the job once this one has refused it; delay in ms from now, deadline in ms since 1970.
local PLAIN_TERMS = { place = '', priority = 0, delay = 0 }

local function terms_read(text)
  if text == '' then return PLAIN_TERMS end
  local elsewhere, place, priority, delay, deadline = string.match(text, '^(a?)(%a?),(%d*),(%d*),(%d*)$')
  return {
    elsewhere = elsewhere ~= '', place = place,
    priority = tonumber(priority) or 0, delay = tonumber(delay) or 0, deadline = tonumber(deadline),
  }
end
