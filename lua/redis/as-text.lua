local as_text = {}

-- A microsecond timestamp as text: tostring() and .. keep only 14 digits of a number. Formatting two integers takes a
-- third less time. Each has to fit into 32 bits, the size of a C long on some platforms.
function as_text.us(us)
  local below_s = us % 1000000
  if us < 1000000 or us >= 2e15 or below_s % 1 ~= 0 then return string.format('%.0f', us) end
  return string.format('%d%06d', (us - below_s) / 1000000, below_s)
end

-- The same for Redis's reply to TIME, whose parts are texts already.
function as_text.time(time)
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- A number as text that reads back as the same number.
function as_text.exact(number)
  return string.format('%.17g', number)
end

return as_text
