-- BullMQ's global concurrency (`concurrency` of …:meta) and the shape's are one value, so that BullMQ's scripts obey
-- it. A stock queue writes it without changing the shape. While the downstream limits running jobs the smaller of both
-- applies, and the stock queue's value returns afterwards; otherwise it applies until the shape's value changes.

-- The value set by a stock queue, '' if none. own: the shape's own value, or ''; before: what the shape wrote last, or
-- false
local function concurrency_of_stock(base, own, before, known)
  local current = redis.call('HGET', base .. 'meta', 'concurrency')
  if current ~= before then return current or '' end
  local known_own, stock = string.match(known or ':', '^(.*):(.*)$')
  return known_own == own and stock or ''
end

-- Returns the shape's concurrency, BullMQ's and, while the downstream limits it, the value to remember
-- (`ownConcurrency`: '<the shape's>:<a stock queue's>'); each nil if there is none. limit: the downstream's, or nil
local function concurrency_resolve(base, own, limit, before, known)
  if not limit and not known then return own, own end
  local text = own and tostring(own) or ''
  local stock = concurrency_of_stock(base, text, before, known)
  if not limit then return own, tonumber(stock) or own end
  local least = math.min(limit, own or limit, tonumber(stock) or limit)
  return least, least, text .. ':' .. stock
end

return concurrency_resolve
