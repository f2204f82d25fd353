local job_terms = {}

-- What an admission needs of a new job besides its cost, as text (src/admission/job-terms.ts): '' if nothing, else
-- 'place,priority,delay,deadline'. The place is l for a lifo job, w for one that waits for its children, and a before it
-- if another shard is asked for the job once this one has refused it; delay in ms from now, deadline in ms since 1970.
job_terms.PLAIN = { place = '', priority = 0, delay = 0 }

function job_terms.read(text)
  if text == '' then return job_terms.PLAIN end
  local elsewhere, place, priority, delay, deadline = string.match(text, '^(a?)(%a?),(%d*),(%d*),(%d*)$')
  return {
    elsewhere = elsewhere ~= '', place = place,
    priority = tonumber(priority) or 0, delay = tonumber(delay) or 0, deadline = tonumber(deadline),
  }
end

return job_terms
