-- The slot of a running job (µs) or, if nothing paces it, when it was fetched by its worker's clock; nil if the job is
-- gone.
local function job_began(base, id)
  local ms = tonumber(redis.call('HGET', base .. id, 'processedOn') or nil)
  return ms and ms * 1000
end

return job_began
